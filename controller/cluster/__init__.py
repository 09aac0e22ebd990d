"""What schedulers know of a cluster, as pure values: networks (cost_map), work (workloads), and nodes (hardware)."""
