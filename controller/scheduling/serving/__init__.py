"""Scheduling of the API server's pods: waiting pods are placed on nodes by the framework's policies."""
