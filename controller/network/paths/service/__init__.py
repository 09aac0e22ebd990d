"""The path server as a process: its feed, its service and the client of it."""
