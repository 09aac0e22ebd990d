"""Weights of equally good next hops, changed where a link cannot carry the load that the hash puts on it."""
