"""Kernels of the cost map; the reference implementation is `controller.cluster.cost_map.reference`."""
