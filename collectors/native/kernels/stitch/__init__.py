"""Hops that report individually, joined to packets and paths."""
