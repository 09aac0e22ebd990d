"""Decisions of the task scheduler as pure functions: the centre, unit type, unit count and start time of a task."""
