"""Fabrics: a topology value, realised in virtual time or in the kernel."""
