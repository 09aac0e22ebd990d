"""Kernels whose time is that of disks and networks."""
