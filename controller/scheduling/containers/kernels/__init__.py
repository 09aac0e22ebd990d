"""Computations of the policies over all nodes at once, in the kernel language."""
