"""Dispatching what the API server has: tasks that wait go to compute centres, probes before them."""
