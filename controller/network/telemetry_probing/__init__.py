"""Probe packets between hosts, so that links without other traffic are measured, and in both directions."""
