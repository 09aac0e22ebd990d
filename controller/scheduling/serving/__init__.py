"""Scheduling what the service access point has: pods that wait are placed on nodes, by the framework's policies."""
