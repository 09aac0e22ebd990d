"""Runs operators on workers that reduce over a tree."""
