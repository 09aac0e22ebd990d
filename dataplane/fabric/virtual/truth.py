"""Ground truth at every hop: the yardstick for what telemetry reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from dataplane.fabric.hosts import find_probe

MAX_HOPS = 1 << 20
"""Maximum number of hops kept; later ones are counted in `unrecorded`."""


@dataclass(frozen=True, slots=True)
class Hop:
    """A packet crossing a switch: last bit in, first bit out, last bit out; ns, on the fabric's clock."""

    switch: str
    flow_id: int
    sequence: int
    in_port: int
    out_port: int
    arrived_ns: int
    started_ns: int
    departed_ns: int

    @property
    def residence_ns(self) -> int:
        """Time before its transmission began: hop latency in INT terms."""
        return self.started_ns - self.arrived_ns


@dataclass(slots=True)
class HopRecorder:
    """Pairs arrivals and departures of probes at each switch, by flow and sequence, whatever INT did to the frame."""

    hops: list[Hop] = field(default_factory=list)
    unrecorded: int = 0
    _inside: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)

    def arrived(self, switch: str, port: int, frame: bytes, now_ns: int) -> None:
        """Record a frame whose last bit arrives now."""
        probe = find_probe(frame)
        if probe is None:
            return
        if len(self._inside) >= MAX_HOPS:
            self.unrecorded += 1
            return
        self._inside[switch, probe.flow_id, probe.sequence] = port, now_ns

    def departed(self, switch: str, port: int, frame: bytes, started_ns: int, departed_ns: int) -> None:
        """Record a frame that began to leave at `started_ns`; a second copy of a frame is not a hop."""
        probe = find_probe(frame)
        entered = None if probe is None else self._inside.pop((switch, probe.flow_id, probe.sequence), None)
        if probe is None or entered is None:
            return
        if len(self.hops) >= MAX_HOPS:
            self.unrecorded += 1
            return
        in_port, arrived_ns = entered
        hop = Hop(switch, probe.flow_id, probe.sequence, in_port, port, arrived_ns, started_ns, departed_ns)
        self.hops.append(hop)

    def of_packet(self, flow_id: int, sequence: int) -> Iterator[Hop]:
        """Yield the hops of one packet in time order."""
        return (hop for hop in self.hops if (hop.flow_id, hop.sequence) == (flow_id, sequence))
