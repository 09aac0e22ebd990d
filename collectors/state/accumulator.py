"""Accumulated samples and paths in the form that the state needs: windows of links and paths, flows with path and rate.

`collectors.native.accumulator` runs in production, `collectors.reference.accumulator` is the same in plain Python; one
test suite covers both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from collectors.clocks.values import Corrections, FlightColumns
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.statistics.columns import Flags, Integers, Numbers
from collectors.statistics.link_windows import LinkWindows
from collectors.statistics.sketch import Sketch
from collectors.statistics.window import WindowColumns, WindowFigures
from collectors.values import FlowKey, NetworkSignals
from dataplane.topology.values import LinkKey

MOST_SWITCHES: Final = 64
"""Longer paths are not kept."""

SWEEP_NS: Final = 100_000_000
"""Interval at which a full table is swept for paths that no flow takes any more."""


@dataclass(frozen=True, slots=True, eq=False)
class SwitchPath:
    """A path that packets take, one object for many flows; `figures` are those of all whole packets on its switches."""

    switches: tuple[str, ...]
    links: tuple[LinkKey, ...]
    figures: WindowFigures


@dataclass(frozen=True, slots=True)
class SeenFlow:
    """A flow that was heard of lately."""

    flow: FlowKey
    path: SwitchPath
    received_ns: int
    rate_bps: int | None
    measured_bytes: int = 0
    is_young: bool = False
    gap_mean_ns: int | None = None
    gap_variation: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class RouteColumns:
    """Routes over switches that flows take, side by side.

    `links` has a row for each route: the numbers of its links in the topology's order, then -1. Delays are UNKNOWN and
    `newest_ns` is 0 where no whole packet was measured.
    """

    switches: tuple[tuple[str, ...], ...]
    links: NDArray[np.int64]
    delay_mean_ns: Integers
    delay_p50_ns: Integers
    delay_p99_ns: Integers
    samples: Integers
    newest_ns: Integers


@dataclass(frozen=True, slots=True, eq=False)
class FlowColumns:
    """Flows that were heard of lately, side by side; `src` and `dst` index `addresses`, `route` indexes `routes`.

    Addresses are packed, 4 bytes of IPv4 or 16 of IPv6, each once. `access_links` are the numbers of the links from the
    source host and to the destination host, -1 for hosts that the topology lacks. Rates are in bit/s, UNKNOWN where no
    packet was counted.
    """

    addresses: Sequence[bytes]
    routes: RouteColumns
    src: Integers
    dst: Integers
    protocol: Integers
    src_port: Integers
    dst_port: Integers
    route: Integers
    access_links: tuple[Integers, Integers]
    received_ns: Integers
    rate_bps: Integers
    measured_bytes: Integers
    is_young: Flags
    gap_mean_ns: Integers
    gap_variation: Numbers


class SeenFlows(Protocol):
    """The flows at the time of the request, each once, however late they are read."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[SeenFlow]: ...


@runtime_checkable
class FlowsInColumns(SeenFlows, Protocol):
    """Flows kept as columns; iteration over them costs more."""

    def columns(self) -> FlowColumns:
        """Return the flows side by side, in the same order."""
        ...


class Store(Protocol):
    """Store from which the state is built."""

    def take_sample(self, sample: LinkSample) -> None:
        """Take one packet's sample of one link; samples older than the window are counted and left out."""
        ...

    def take_path(self, path: SeenPath) -> None:
        """Take the whole path of one packet."""
        ...

    def take_packet(self, flow: FlowKey, ip_bytes: int, now_ns: int, source_ns: int | None = None) -> None:
        """Note one measured packet of a flow, once per packet; the flow's rate is estimated from these.

        `source_ns` is when it came to its first switch, by that switch's clock.
        """
        ...

    def take_stamp(self, flow: FlowKey, stamp_ns: int) -> None:
        """Note when a measured packet of a counted flow reached its first switch, by that switch's clock."""
        ...

    def take_queue_report(self, link: LinkKey) -> None:
        """Note that a switch has reported a congested queue of a link."""
        ...

    def take_full_queue(self, link: LinkKey) -> None:
        """Note that a full queue of a link has refused a packet."""
        ...

    def take_signals(self) -> NetworkSignals:
        """Return the signs, since the last call, that the network has changed."""
        ...

    def begin_round(self, now_ns: int) -> None:
        """Begin a round of decisions, unless one has just begun: the present rates of flows are known from now on."""
        ...

    def link(self, link: LinkKey) -> WindowFigures | None:
        """Return a link's figures, None when it was never heard of."""
        ...

    def delays(self, link: LinkKey) -> Sketch:
        """Return a sketch of the delays behind a link's figures."""
        ...

    def link_windows(self) -> LinkWindows:
        """Return the windows of all directed links in the topology's order, to be merged with those of others."""
        ...

    def flows(self, now_ns: int) -> SeenFlows:
        """Return the flows whose path was seen recently."""
        ...

    def take_flights(self, places: Mapping[LinkKey, int]) -> FlightColumns:
        """Return the least difference of stamps of each link since the last call, where clocks are not synchronised.

        `places` are the links' in the topology's order.
        """
        ...

    def correct(self, corrections: Corrections) -> None:
        """Use these corrections for the differences of stamps from now on, in samples that it makes itself."""
        ...

    @property
    def flow_count(self) -> int:
        """Number of flows, including those not heard of lately."""
        ...


class LinkFigures(Protocol):
    """The figures of all links side by side."""

    def changed_links(self) -> Integers:
        """Return the places, in the topology's order, of the links whose figures have changed since the last call."""
        ...

    def link_columns(self, places: Integers) -> WindowColumns:
        """Return the figures of some directed links, by place."""
        ...


class ColumnStore(Store, LinkFigures, Protocol):
    """A store that has the figures of all links side by side."""
