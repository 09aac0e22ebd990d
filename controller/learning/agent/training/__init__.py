"""Training inline with decisions, in a thread or in a process; decisions never wait for the latter two."""
