"""The flow classifier in plain Python: what the kernels are compared with."""
