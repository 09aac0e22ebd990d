"""Kernels of the pool; the plain twin is `controller.schedulers.learning.environment.plain`."""
