"""Training in line with decisions, in a thread or in a process; decisions wait for neither of the last two."""
