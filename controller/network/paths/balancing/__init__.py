"""Groups of equally good next hops by other weights, where a link cannot carry what the hash puts on it."""
