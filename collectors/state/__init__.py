"""The network's state, summed up from hop records, for each directed link and each path."""
