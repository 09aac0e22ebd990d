"""Decisions in machine code: tokens side by side in vectors, each weight read once for sixteen of them.

`routines` writes loops over vectors, `products`, `rows` and `attending` what a network is made of, `stages` puts these
together in the kernel language, and `compiled` is how Python calls them.
"""
