"""Output of tasks: read while their jobs run, and kept after their end."""
