"""Clusters as pure values: networks (cost_map, network_state), work (workloads), nodes (hardware); an ALTO server."""
