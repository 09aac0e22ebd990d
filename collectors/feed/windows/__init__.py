"""Sums behind the figures of links, which readers merge."""
