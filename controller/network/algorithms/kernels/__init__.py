"""Kernels of the path algorithms."""
