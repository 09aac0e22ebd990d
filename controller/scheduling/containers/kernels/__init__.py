"""What the policies compute for all nodes at once, in the kernel language."""
