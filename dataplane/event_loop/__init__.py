"""Deadlines and turns for the tasks that share a daemon's event loop."""
