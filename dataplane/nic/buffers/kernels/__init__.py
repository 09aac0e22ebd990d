"""Kernels over buffers and software queues."""
