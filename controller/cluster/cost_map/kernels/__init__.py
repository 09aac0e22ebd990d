"""Kernels of the cost map; the reference implementation is `tests.reference.pair_figures`."""
