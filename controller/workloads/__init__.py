"""Workload execution: node managers, agents of compute centres, and the workload controller."""
