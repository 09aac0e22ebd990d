"""Carries out decisions, and communicates with the API server."""
