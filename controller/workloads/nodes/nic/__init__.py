"""Polled queues of this machine: which process polls them, in which mode, and who may have them."""
