"""Kernels of the simulation; the plain twin is `controller.scheduling.simulation.plain_sharing`."""
