"""Probe tasks: small programs of probe kernels that measure what a compute centre really delivers.

This module imports nothing: each probe task runs in a fresh process, which must start quickly.
"""
