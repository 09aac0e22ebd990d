"""What is learned from: for each input what an action is, how the six features map to it, and where figures are stated.

`blocks`, `graphs` and `bursty` make systems and workloads of the pool, where an action is a node; `jobs` makes batch
logs, where an action is a place in a window of waiting jobs, which `ordering` is the environment of.
"""
