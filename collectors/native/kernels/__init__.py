"""Kernels of the collector (see `dataplane.native`)."""
