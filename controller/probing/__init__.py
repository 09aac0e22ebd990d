"""Probe tasks: small programs of probe kernels that measure what a compute centre really delivers.

Nothing is imported here: what runs a probe task starts anew for each one, and must start quickly.
"""
