"""Kernels of the pool; the plain twin is `controller.learning.environment.plain`."""
