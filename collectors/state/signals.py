"""Signs that the network has changed since the last query, in plain Python.

`collectors.native.kernels.state.signals` is the same in native memory.
"""

from __future__ import annotations

from typing import Final

from collectors.state.gaps import more_hz
from collectors.values import FlowKey, NetworkSignals
from dataplane.topology.values import LinkKey, Topology

MOST_GROWN: Final = 64
"""Maximum number of grown flows listed; others are only counted."""
SHORTEST_ROUND_NS: Final = 50_000_000
"""Rounds are at least this far apart: a second, faster reader of snapshots must not cut growth into unnoticed bits."""


class RoundClock:
    """Numbers rounds of decisions: the rates of flows at its beginning are known."""

    def __init__(self) -> None:
        self.round = 0
        self._begun_ns: int | None = None

    def begin(self, now_ns: int) -> int:
        """Begin a round, unless one has just begun; return its number, of 32 bits."""
        if self._begun_ns is None or not 0 <= now_ns - self._begun_ns < SHORTEST_ROUND_NS:
            self._begun_ns, self.round = now_ns, (self.round + 1) & 0xFFFF_FFFF
        return self.round


class SignalNotes:
    """Keeps the longest queue between switches, whether one was reported or full, and flows that have grown."""

    def __init__(self, topology: Topology) -> None:
        self._switches = topology.switch.keys()
        self._queue_frames: int | None = None
        self._queue_reported = self._queue_full = False
        self._grown: dict[FlowKey, tuple[int, int]] = {}
        self._unlisted = 0

    def _is_inner(self, link: LinkKey) -> bool:
        return link.src in self._switches and link.dst in self._switches

    def note_queue(self, link: LinkKey, frames: int | None) -> None:
        """Note how many frames a packet met in the queue of a link."""
        if frames is not None and self._is_inner(link):
            self._queue_frames = max(frames, self._queue_frames or 0)

    def note_queue_report(self, link: LinkKey) -> None:
        """Note that a switch has reported a congested queue."""
        self._queue_reported |= self._is_inner(link)

    def note_full_queue(self, link: LinkKey) -> None:
        """Note that a full queue has refused a packet."""
        self._queue_full |= self._is_inner(link)

    def note_growth(self, flow: FlowKey, mean: int, known_mean: int) -> None:
        """Note that a flow's mean gap is less than the known one, 0 for none."""
        if flow in self._grown:
            self._grown[flow] = mean, self._grown[flow][1]
        elif len(self._grown) < MOST_GROWN:
            self._grown[flow] = mean, known_mean
        else:
            self._unlisted += 1

    def take(self) -> NetworkSignals:
        """Return the signs noted since the last call."""
        grown = {flow: more_hz(mean, known_mean) for flow, (mean, known_mean) in self._grown.items()}
        taken = NetworkSignals(self._queue_frames, self._queue_reported, self._queue_full, grown, self._unlisted)
        self._queue_frames, self._queue_reported, self._queue_full = None, False, False
        self._grown, self._unlisted = {}, 0
        return taken
