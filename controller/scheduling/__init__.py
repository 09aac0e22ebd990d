"""Schedulers: which node a task or a pod runs on (framework), and the same decisions in virtual time (simulation)."""
