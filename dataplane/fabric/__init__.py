"""Fabrics: a topology realised in virtual time or in the kernel."""
