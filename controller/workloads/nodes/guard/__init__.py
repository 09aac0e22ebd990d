"""The guard of a node: kills its pods when the lease is over, whether or not a manager runs."""
