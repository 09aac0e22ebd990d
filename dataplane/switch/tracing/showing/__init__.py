"""Traces in their forms: text for people, JSON for tools."""
