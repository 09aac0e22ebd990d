"""Hops that report each for themselves, joined to packets and paths."""
