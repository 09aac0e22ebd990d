"""Kernels of the pool; the plain twin is `tests.reference.pool`."""
