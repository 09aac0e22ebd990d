"""Kernels of the cost map; the plain twin is `controller.cluster.cost_map.reference`."""
