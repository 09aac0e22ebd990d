"""Whose resources are, and how much each account has of what quotas bound."""
