"""Kernels of the simulation; the plain twin is `tests.reference.sharing`."""
