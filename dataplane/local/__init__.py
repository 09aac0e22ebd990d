"""Local programs, and deadlines that adapt to the machine's load."""
