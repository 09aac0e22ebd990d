"""Polled queues as a resource of their node: reported to its manager, which drives and grants them."""
