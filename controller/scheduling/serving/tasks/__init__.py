"""Dispatching what the service access point has: tasks that wait go to compute centres, probes before them."""
