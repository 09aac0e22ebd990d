"""Kernels of driver threads."""
