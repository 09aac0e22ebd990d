"""Operators run for real, on workers that reduce over a tree."""
