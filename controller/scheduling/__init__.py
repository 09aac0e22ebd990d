"""Schedulers: the node of a task or a pod (framework), and the same decisions in virtual time (simulation)."""
