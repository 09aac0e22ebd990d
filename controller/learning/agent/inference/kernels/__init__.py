"""Decisions in machine code: tokens side by side in vectors, each weight read once for sixteen of them.

`routines` writes loops over vectors; `products`, `rows` and `attending` are the operations of a network, which `stages`
combines in the kernel language; `compiled` makes them callable from Python.
"""
