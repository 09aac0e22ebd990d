"""Scheduling what the API server has: pods that wait are placed on nodes, by the framework's policies."""
