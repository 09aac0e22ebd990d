"""What schedulers know of a cluster, as pure values: what lies between hosts, hardware, work, estimates."""
