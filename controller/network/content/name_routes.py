"""Routes of requests by name: to the producer that announces the longest prefix."""

from __future__ import annotations

from controller.network.tables.store import MAX_ROUTES
from dataplane.store.names import Prefix


class NameRoutes:
    """Producers by prefix, the same at all switches; of two that announce the same prefix the first one keeps it."""

    def __init__(self, kept_ns: int) -> None:
        """Keep a producer that no longer announces a prefix for `kept_ns`."""
        self._kept_ns = kept_ns
        self._heard: dict[Prefix, tuple[int, int]] = {}
        self.refused = 0
        """Announcements for which there was no room, or of another producer's prefix."""

    @property
    def is_used(self) -> bool:
        """Return whether anything has been announced."""
        return bool(self._heard)

    def announced(self, prefix: Prefix, producer: int, now_ns: int) -> None:
        """Take an announcement."""
        holder, heard_ns = self._heard.get(prefix, (producer, now_ns))
        is_taken = holder != producer and now_ns - heard_ns < self._kept_ns
        if is_taken or (prefix not in self._heard and len(self.at(now_ns)) >= MAX_ROUTES):
            self.refused += 1
            return
        self._heard[prefix] = producer, now_ns

    def adopt(self, prefix: Prefix, producer: int, now_ns: int) -> None:
        """Take a route that a switch has, as if it had just been announced, unless it is known."""
        if prefix not in self._heard:
            self.announced(prefix, producer, now_ns)

    def at(self, now_ns: int) -> dict[Prefix, int]:
        """Return the routes that hold now."""
        self._heard = {
            prefix: (producer, heard_ns)
            for prefix, (producer, heard_ns) in self._heard.items()
            if now_ns - heard_ns < self._kept_ns
        }
        return {prefix: producer for prefix, (producer, _) in self._heard.items()}
