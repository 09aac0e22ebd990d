"""A ring of three switches with arbitrary clocks, and the packets between them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from collectors.clocks.flights import Flights
from collectors.clocks.values import FlightColumns, StampDifference
from dataplane.topology.values import Endpoint, HostNode, Link, LinkKey, SwitchNode, Topology

MS = 1_000_000
SECOND = 1000 * MS
DELAY_NS = 50_000


def ring() -> Topology:
    """s1 - s2 - s3 - s1, and a host at s1; every cable takes 50 us."""
    cables = [("s1", 1, "s2", 1), ("s2", 2, "s3", 1), ("s3", 2, "s1", 2), ("h1", 0, "s1", 3)]
    return Topology(
        "ring",
        tuple(SwitchNode(f"s{n}", n) for n in (1, 2, 3)),
        (HostNode("h1", 0x020000000001, IPv4Address("10.0.0.1")),),
        tuple(Link(Endpoint(a, p), Endpoint(b, q), 10**9, DELAY_NS, 100) for a, p, b, q in cables),
        synchronised_clocks=False,
    )


def columns(seen: Iterable[StampDifference], topology: Topology | None = None) -> FlightColumns:
    """Return the observations of links, by default the ring's, in the estimator's form."""
    flights = Flights()
    for flight in seen:
        flights.add(flight)
    links = (topology or ring()).directed_links
    return flights.take({key: index for index, key in enumerate(links)})


@dataclass(frozen=True)
class WallClock:
    """A switch's clock: an offset and a drift against true time."""

    offset_ns: int = 0
    drift_ppb: int = 0

    def reads(self, true_ns: int) -> int:
        return true_ns + self.offset_ns + self.drift_ppb * true_ns // SECOND


@dataclass
class World:
    """Clocks by switch, and the links' random extra delay: uniform, up to this many ns."""

    clocks: Mapping[str, WallClock]
    jitter_ns: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rng: random.Random = field(default_factory=lambda: random.Random(1))

    def flight(self, src: str, dst: str, true_ns: int, extra_ns: int = 0) -> StampDifference:
        """Return the measurement of one packet that leaves src at a time, reported at once."""
        took_ns = DELAY_NS + extra_ns + self.rng.randint(0, self.jitter_ns.get((src, dst), 0))
        left = self.clocks[src].reads(true_ns)
        arrived = self.clocks[dst].reads(true_ns + took_ns)
        return StampDifference(LinkKey(src, dst), left, arrived - left, true_ns + took_ns, 1)

    def fastest(self, src: str, dst: str, start_ns: int, packets: int = 10) -> StampDifference:
        """Return the least difference of some packets, 10 ms apart."""
        return min(
            (self.flight(src, dst, start_ns + 10 * MS * number) for number in range(packets)),
            key=lambda seen: seen.flight_ns,
        )

    def offset_ns(self, src: str, dst: str, true_ns: int) -> int:
        """Return how much dst's clock is ahead of src's."""
        return self.clocks[dst].reads(true_ns) - self.clocks[src].reads(true_ns)
