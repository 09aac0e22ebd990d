"""What runs workloads: managers of nodes, agents of compute centres, the workload controller."""
