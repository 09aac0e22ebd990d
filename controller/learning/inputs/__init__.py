"""Inputs of learning: for each one the meaning of an action, the mapping of the six features, and published figures.

`blocks`, `graphs` and `bursty` make systems and workloads of the pool, where an action is a node; `jobs` makes batch
logs, where an action is a position in a window of waiting jobs, with `ordering` as the environment.
"""
