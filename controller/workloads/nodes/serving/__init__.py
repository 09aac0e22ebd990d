"""Carries out what is decided, and speaks with the API server."""
