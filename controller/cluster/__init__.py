"""What schedulers know of a cluster, as pure values: what lies between hosts (cost_map), and work (workloads)."""
