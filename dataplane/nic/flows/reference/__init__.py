"""The flow classifier in plain Python: the reference for the kernels."""
