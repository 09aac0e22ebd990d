"""Policies of the scheduler for containers; `framework.plugins` knows them by name."""
