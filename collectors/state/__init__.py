"""The network's state: what hop records add up to, for each directed link and each path."""
