"""Levers of balancing: quotas and clocks of CPUs, GPUs' clocks and instances, pools' units, programs' precision."""
