"""Owners and projects of resources, and each account's usage of what quotas limit."""
