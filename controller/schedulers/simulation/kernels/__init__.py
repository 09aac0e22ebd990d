"""Kernels of the simulation; the plain twin is `controller.schedulers.simulation.plain_sharing`."""
