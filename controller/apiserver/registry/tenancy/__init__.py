"""Owners and projects of resources, and how much each account has of what quotas bound."""
