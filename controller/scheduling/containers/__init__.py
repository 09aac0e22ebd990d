"""Policies of the scheduler for containers."""
