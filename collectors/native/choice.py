"""Which packets' single hops are joined, when there are more than Python can join."""

from __future__ import annotations

from typing import Final

SECOND_NS: Final = 1_000_000_000
MOST_BITS: Final = 16


class JoinChoice:
    """Halves the share of packets as often as needed for so many reports a second; doubles it when few come.

    A share is chosen by bits of a packet's hash, so that all its hops are joined or none.
    """

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._bits = 0
        self._begun_ns = 0
        self._joined = 0

    @property
    def mask(self) -> int:
        """The bits of a packet's hash of which none may be set."""
        return (1 << self._bits) - 1

    @property
    def share(self) -> float:
        """The share of packets that are joined."""
        return 1.0 / (1 << self._bits)

    def take(self, now_ns: int, joined: int) -> bool:
        """Take how many reports have been joined since the last call; return whether the share has changed."""
        before = self._bits
        if now_ns - self._begun_ns >= SECOND_NS:
            # Twice as many would still be half of what may be.
            if 4 * self._joined < self._per_s:
                self._bits = max(self._bits - 1, 0)
            self._begun_ns, self._joined = now_ns, 0
        self._joined += joined
        if self._joined > self._per_s:
            self._bits = min(self._bits + 2, MOST_BITS)
            self._joined -= self._per_s // 4
        return self._bits != before
