"""Kernels of the packet manager."""
