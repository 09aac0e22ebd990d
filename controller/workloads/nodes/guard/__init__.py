"""The guard of a node: kills its pods when the lease ends, whether or not a manager runs."""
