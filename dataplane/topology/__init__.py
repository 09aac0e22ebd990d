"""Topologies: switches, hosts and links as values, files that describe them, and families that generate them."""
