"""Kernels dominated by disk and network time."""
