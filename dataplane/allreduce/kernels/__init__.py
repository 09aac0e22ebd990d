"""The packet engine's inner loops, in the kernel language."""
