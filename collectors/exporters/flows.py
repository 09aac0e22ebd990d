"""Flows and their paths from packets that agents sampled, where telemetry shows none.

Agents sample independently: the samples of one flow come from different packets, each at one switch, with the ports
that it entered and left by. Joined at the cables they are the flow's path.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from collectors.state.accumulator import SeenFlow, SwitchPath
from collectors.state.path_figures import PathMaker
from collectors.statistics.window import NO_FIGURES
from collectors.values import FlowKey, LinkState, PathState
from dataplane.clock import NS_PER_S
from dataplane.topology.values import HostNode, LinkKey, Topology

_SECONDS: Final = 128
"""Maximum number of seconds with samples kept for a flow's rate."""


@dataclass(slots=True)
class _Passage:
    """Ports by which a flow last crossed a switch, None where the sample does not say, and when."""

    inward: int | None
    outward: int | None
    at_ns: int


_TOGETHER_NS: Final = 20_000_000
"""Agents collect samples and send them together: those that come this soon after another were taken before it."""


@dataclass(slots=True)
class _Second:
    """Samples of a second from the first on: bytes that they stand for, and those of the packets.

    `first_bytes` are those that came together with the first.
    """

    first_ns: int
    first_bytes: int
    frame_bytes: int
    more_bytes: int = 0


@dataclass(slots=True)
class _Flow:
    """A flow: its passages by switch, and its samples by switch."""

    newest_ns: int
    passages: dict[str, _Passage] = field(default_factory=dict)
    sampled: dict[str, deque[_Second]] = field(default_factory=dict)


class ExportedFlows:
    """Flows that agents sampled, at most `most`; its methods may be called from any thread."""

    def __init__(self, topology: Topology, stale_after_ns: int, most: int) -> None:
        self._topology, self._stale_ns, self._most = topology, stale_after_ns, most
        self._links = topology.directed_links
        self._flows: OrderedDict[FlowKey, _Flow] = OrderedDict()
        self._lock = threading.Lock()

    def take(  # noqa: PLR0917 - one sample's fields
        self, flow: FlowKey, switch: str, ends: tuple[int | None, int | None], frame_bytes: int, rate: int, now_ns: int
    ) -> None:
        """Take a packet that a switch sampled, one in `rate`; `ends` are the ports it entered and left by."""
        with self._lock:
            known = self._flows.pop(flow, None) or _Flow(now_ns)
            self._flows[flow] = known
            known.newest_ns = now_ns
            known.passages[switch] = _Passage(*ends, now_ns)
            seconds = known.sampled.setdefault(switch, deque(maxlen=_SECONDS))
            stands_for = frame_bytes * max(rate, 1)
            since_ns = now_ns - seconds[-1].first_ns if seconds else NS_PER_S
            if since_ns < NS_PER_S:
                seconds[-1].frame_bytes += frame_bytes
                if since_ns < _TOGETHER_NS:
                    seconds[-1].first_bytes += stands_for
                else:
                    seconds[-1].more_bytes += stands_for
            else:
                seconds.append(_Second(now_ns, stands_for, frame_bytes))
            while len(self._flows) > self._most:
                self._flows.popitem(last=False)

    def complete(
        self, paths: Mapping[FlowKey, PathState], links: Mapping[LinkKey, LinkState], now_ns: int
    ) -> Mapping[FlowKey, PathState]:
        """Return flows' paths, also of those that only agents have sampled."""
        with self._lock:
            for flow in [flow for flow, known in self._flows.items() if now_ns - known.newest_ns > self._stale_ns]:
                del self._flows[flow]
            seen = [self._seen(flow, known, now_ns) for flow, known in self._flows.items() if flow not in paths]
        if not seen:
            return paths
        maker = PathMaker(self._topology, links, now_ns, self._stale_ns)
        return {**paths, **{flow.flow: maker.path(flow) for flow in seen}}

    def _seen(self, flow: FlowKey, known: _Flow, now_ns: int) -> SeenFlow:
        switches = self._way(known, now_ns)
        rate_bps, measured_bytes = self._rate(known.sampled[switches[0]], now_ns)
        hosts = self._topology.host_by_address
        stops = [*_name(hosts.get(flow.src)), *switches, *_name(hosts.get(flow.dst))]
        links = [key for ends in itertools.pairwise(stops) if (key := LinkKey(*ends)) in self._links]
        path = SwitchPath(switches, tuple(links), NO_FIGURES)
        return SeenFlow(flow, path, known.newest_ns, rate_bps, measured_bytes)

    def _way(self, known: _Flow, now_ns: int) -> tuple[str, ...]:
        """Return the switches from the first that sampled the flow on, as far as their ports join them."""
        fresh = {name: way for name, way in known.passages.items() if now_ns - way.at_ns <= self._stale_ns}
        neighbours = self._topology.neighbours
        following: dict[str, str] = {}
        for name, way in fresh.items():
            far = None if way.outward is None else neighbours[name].get(way.outward)
            if far is not None and far.node in fresh and fresh[far.node].inward in {far.port, None}:
                following[name] = far.node
        first = [name for name in fresh if name not in following.values()]
        # Of several beginnings, e.g. after a move, the newest counts.
        at = max(first, key=lambda name: fresh[name].at_ns, default=None)
        switches: list[str] = []
        while at is not None and at not in switches:
            switches.append(at)
            at = following.get(at)
        return tuple(switches)

    def _rate(self, seconds: Iterable[_Second], now_ns: int) -> tuple[int | None, int]:
        """Return a flow's rate in bit/s, None within its first second, and the bytes of the packets behind it."""
        recent = [second for second in seconds if now_ns - second.first_ns <= self._stale_ns]
        measured_bytes = sum(second.frame_bytes for second in recent)
        span_ns = now_ns - recent[0].first_ns if recent else 0
        if span_ns < NS_PER_S:
            return None, measured_bytes
        # The very first samples only begin the span.
        total = sum(second.first_bytes + second.more_bytes for second in recent) - recent[0].first_bytes
        return 8 * total * NS_PER_S // span_ns, measured_bytes


def _name(host: HostNode | None) -> tuple[str, ...]:
    return () if host is None else (host.name,)
