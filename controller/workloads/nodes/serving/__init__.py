"""Carries out what is decided, and speaks with the service access point."""
