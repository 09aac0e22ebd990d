"""Compiled kernels of traffic engineering."""
