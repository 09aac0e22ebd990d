"""Leases of nodes and centres, by a monotonic clock: stepping the wall clock forward ends none of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from controller.apiserver.resources import Resource
from dataplane.clock import NS_PER_S


def _boot_time_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Leases:
    """Times at which this server saw each node's or centre's last report, by the monotonic clock `now_ns`.

    A report that it did not receive itself, made to another server or before its start, counts from when it first sees
    it: a lease may then seem longer, but never shorter.
    """

    def __init__(self, now_ns: Callable[[], int] = _boot_time_ns) -> None:
        self._now_ns = now_ns
        self._seen: dict[tuple[str, str], tuple[int | None, int]] = {}

    def note(self, resource: Resource) -> None:
        """Record the arrival of a report."""
        self._seen[self._key(resource)] = (resource.status.heartbeat_ns, self._now_ns())

    def see(self, resource: Resource) -> None:
        """Record the arrival of a report unless it was seen before."""
        heartbeat_ns, _ = self._seen.get(self._key(resource), (None, 0))
        if heartbeat_ns != resource.status.heartbeat_ns:
            self.note(resource)

    def is_over(self, resource: Resource) -> bool:
        """Return whether the lease from a node's or centre's last report has expired."""
        if resource.status.heartbeat_ns is None:
            return True
        heartbeat_ns, seen_ns = self._seen.get(self._key(resource), (None, 0))
        if heartbeat_ns != resource.status.heartbeat_ns:
            self.note(resource)
            return False
        lease_s: float = resource.spec.lease_s
        return self._now_ns() >= seen_ns + round(lease_s * NS_PER_S)

    @staticmethod
    def _key(resource: Resource) -> tuple[str, str]:
        return type(resource).__name__, resource.metadata.name
