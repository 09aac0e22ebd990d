"""Samples of links, flows and their paths into their tables."""
