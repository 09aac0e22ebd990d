"""Flow-level transfers between hosts: paths from the cost map's routing, rates by max-min fair sharing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from zlib import crc32

import numpy as np

from controller.cluster.cost_map import CostMap
from controller.common.errors import SchedulerError
from controller.scheduling.simulation.sharing import FairSharing, Hop, Sharing
from controller.scheduling.simulation.units import MOST_BPS, ONE
from dataplane.clock import NS_PER_S
from dataplane.events import EventQueue, Timer
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES

_MOST_PATHS = 256
_ETHERNET_IPV4_TCP_BYTES = 14 + 20 + 32
"""Headers of a TCP segment with timestamps, from Ethernet up."""


class Spreading(StrEnum):
    """Treatment of several paths of a pair: the transfer takes one, drawn by its hash, or a part of each."""

    HASH = "hash"
    SPLIT = "split"


@dataclass(frozen=True, slots=True)
class Framing:
    """Packet framing: the payload of each packet, its headers, and the overhead of Ethernet between frames."""

    payload_bytes: int = 1448
    overhead_bytes: int = _ETHERNET_IPV4_TCP_BYTES + WIRE_OVERHEAD_BYTES

    def __post_init__(self) -> None:
        if self.payload_bytes < 1 or self.overhead_bytes < 0:
            raise SchedulerError(
                f"invalid packets: {self.payload_bytes} bytes of payload, {self.overhead_bytes} of overhead"
            )

    def wire_bits(self, nbytes: int) -> int:
        """Return the bits on a link for this many bytes."""
        packets = -(-nbytes // self.payload_bytes)
        return 8 * (nbytes + packets * self.overhead_bytes)

    def packet_bits(self, nbytes: int) -> int:
        """Return the bits of the largest packet of a transfer."""
        return 8 * (min(nbytes, self.payload_bytes) + self.overhead_bytes)


TCP = Framing()


@dataclass(frozen=True, slots=True)
class Route:
    """The links of a path, the sum of their delays, and their rates without load."""

    hops: tuple[Hop, ...]
    delay_ns: int
    rates_bps: tuple[int, ...]

    def latency_ns(self, packet_bits: int) -> int:
        """Return the delay of the last bit relative to a sender at the rate of the narrowest link.

        Propagation, plus a packet's time at every link but the slowest: it is stored there before it is forwarded.
        """
        times = sorted(-(-packet_bits * NS_PER_S // rate) for rate in self.rates_bps)
        return self.delay_ns + sum(times[:-1])


@dataclass(slots=True)
class _Flow:
    route: Route
    bits: int
    latency_ns: int
    done: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Paths:
    """The paths between two switches, or two hosts with their own path: links with shares, and cumulative shares."""

    links: tuple[dict[int, int], ...]
    sums: tuple[float, ...]

    def draw(self, number: float) -> int:
        """Return the path for a random number in [0, 1)."""
        return min(bisect_right(self.sums, number * self.sums[-1]), len(self.links) - 1)


class Network:
    """Transfers in progress; everything happens in `events`. Raises SchedulerError for hosts without a path.

    Free capacities and delays are those of the cost map; `carried_bits` are by its rows of links. A transfer takes one
    path for its whole life, drawn by `seed` and the order of transfers.
    """

    def __init__(
        self,
        costs: CostMap,
        events: EventQueue,
        *,
        framing: Framing = TCP,
        spreading: Spreading = Spreading.HASH,
        seed: int = 0,
        sharing: Callable[[Sequence[int]], FairSharing] = Sharing,
    ) -> None:
        self.costs, self.framing, self.spreading = costs, framing, spreading
        self.transfers = self.settlings = 0
        self.carried_bits = np.zeros(len(costs.links.rate_bps), np.int64)
        self._events, self._seed = events, seed
        self._capacity: list[int] = np.minimum(costs.links.available_bps, MOST_BPS).tolist()
        self._delay_ns: list[int] = costs.links.delay_ns.tolist()
        self._sharing = sharing(self._capacity)
        self._paths: dict[tuple[int, int], _Paths] = {}
        self._routes: dict[tuple[str, str, int], Route] = {}
        self._flows: dict[int, _Flow] = {}
        self._timer: Timer | None = None
        self._is_settling = False

    @property
    def active(self) -> int:
        """Number of transfers in progress."""
        return len(self._flows)

    def transfer(self, src: str, dst: str, nbytes: int, done: Callable[[], None]) -> None:
        """Send bytes between hosts, and call `done` when the last one has arrived; at once if the host is the same."""
        self.transfers += 1
        if src == dst or nbytes == 0:
            self._events.at(self._now_ns, done)
            return
        route = self._route(src, dst)
        bits = self.framing.wire_bits(nbytes)
        number = self._sharing.add(route.hops, bits, self._now_ns)
        self._flows[number] = _Flow(route, bits, route.latency_ns(self.framing.packet_bits(nbytes)), done)
        self._settle_soon()

    def rate_bps(self, src: str, dst: str) -> int:
        """Return the current total rate of transfers from one host to another."""
        ends = self.costs.model.up.start + self.costs.model.number(src), self._down(dst)
        return sum(
            self._sharing.rate_bps(number)
            for number, flow in self._flows.items()
            if {hop.link for hop in flow.route.hops}.issuperset(ends)
        )

    @property
    def _now_ns(self) -> int:
        return self._events.clock.time_ns

    def _settle_soon(self) -> None:
        """Recompute rates after everything at this moment has happened."""
        if not self._is_settling:
            self._is_settling = True
            self._events.at(self._now_ns, self._settle)

    def _settle(self) -> None:
        self._is_settling = False
        self.settlings += 1
        self._sharing.settle(self._now_ns)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (first := self._sharing.first_to_finish()) is not None:
            self._timer = self._events.timer(max(first.time_ns, self._now_ns), self._finish)

    def _finish(self) -> None:
        now_ns = self._now_ns
        while (first := self._sharing.first_to_finish()) is not None and first.time_ns <= now_ns:
            self._sharing.remove(first.flow)
            flow = self._flows.pop(first.flow)
            for link, share in flow.route.hops:
                self.carried_bits[link] += flow.bits if share == ONE else flow.bits * share // ONE
            self._events.at(now_ns + flow.latency_ns, flow.done)
        self._settle_soon()

    def _route(self, src: str, dst: str) -> Route:
        model = self.costs.model
        start, end = model.number(src), model.number(dst)
        between = (int(model.host_switch[start]), int(model.host_switch[end]))
        # Hosts with a path of their own get negative keys, so that they never collide with switches' keys.
        key = (-1 - start, end) if (start, end) in self.costs.routing.own_paths else between
        if (paths := self._paths.get(key)) is None:
            paths = self._paths[key] = self._find(src, dst)
        drawn = 0
        if len(paths.links) > 1:
            # Not a random generator, so that the same seed draws the same paths whatever else is drawn.
            drawn = paths.draw(crc32(f"{self._seed}/{self.transfers}".encode()) / (1 << 32))
        if (route := self._routes.get((src, dst, drawn))) is None:
            route = self._routes[src, dst, drawn] = self._made(start, dst, paths.links[drawn])
        return route

    def _find(self, src: str, dst: str) -> _Paths:
        model, routing = self.costs.model, self.costs.routing
        start, end = model.number(src), model.number(dst)
        paths = routing.paths(start, end, _MOST_PATHS)
        if not paths:
            raise SchedulerError(f"no path from {src} to {dst}")
        if self.spreading is Spreading.HASH:
            links = tuple({int(row): ONE for row in model.table.rows(path.switches)} for path in paths)
            return _Paths(links, tuple(accumulate(path.share for path in paths)))
        return _Paths(({row: max(round(share * ONE), 1) for row, share in routing.shares(start, end).items()},), (1.0,))

    def _made(self, src: int, dst: str, inner: dict[int, int]) -> Route:
        """Return a route over links between switches, including the hosts' links."""
        up, down = self.costs.model.up.start + src, self._down(dst)
        hops = (Hop(up), *(Hop(row, share) for row, share in inner.items()), Hop(down))
        # Over several parallel paths, delay and queueing are the mean over them.
        delay_ns = sum(self._delay_ns[hop.link] * hop.share for hop in hops) // ONE
        crossed = max(round(sum(hop.share for hop in hops) / ONE), 2)
        rates = sorted(self._capacity[hop.link] for hop in hops)[:crossed]
        return Route(hops, delay_ns, tuple(max(rate, 1) for rate in rates))

    def _down(self, host: str) -> int:
        model = self.costs.model
        return int(model.down.start) + model.number(host)
