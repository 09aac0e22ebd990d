"""Kernels over the queues of ports; a forwarding loop needs no others."""

from dataplane.nic.ports.kernels.dispatch import commit, flush, is_readable, receive, release, reserve
from dataplane.nic.ports.kernels.waiting import wait

__all__ = ["commit", "flush", "is_readable", "receive", "release", "reserve", "wait"]
