"""Values of the cost map: costs from one host to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dataplane.clock import NS_PER_S

UNLIMITED_BPS: Final = 1 << 62
"""Bandwidth from a host to itself: no link limits it."""
UNREACHABLE_NS: Final = -1
"""Delay of unreachable pairs; their free bandwidth is 0 and they lose all packets."""
NEVER_NS: Final = -1
"""Age of figures that were never measured."""
PPB: Final = 1_000_000_000
"""Loss is in lost packets per this many."""


class Basis(StrEnum):
    """Basis of a figure: telemetry of all its links, of some of them, or configuration alone.

    Switches do not measure a host's link towards its switch, so it does not count here; see `access_measured`.
    """

    MEASURED = "measured"
    PARTLY_MEASURED = "partly measured"
    NOMINAL = "nominal"


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic to add from one host to another, bit/s on the wire."""

    src: str
    dst: str
    rate_bps: int


@dataclass(frozen=True, slots=True)
class HostLinkState:
    """A host's own measurement of its sending link: free bandwidth (bit/s), and age.

    No switch measures that link; the other direction is its switch's.
    """

    host: str
    available_bps: int
    age_ns: int

    @classmethod
    def of_counters(cls, host: str, rate_bps: int, sent_bytes: int, interval_ns: int, age_ns: int) -> HostLinkState:
        """Return the bandwidth left by the bytes sent in an interval; ValueError for impossible counters."""
        if sent_bytes < 0 or interval_ns <= 0:
            raise ValueError(f"host {host}: {sent_bytes} bytes sent in {interval_ns} ns")
        used_bps = 8 * sent_bytes * NS_PER_S // interval_ns
        return cls(host, max(0, rate_bps - used_bps), age_ns)


@dataclass(frozen=True, slots=True)
class LinkUse:
    """Load of a link; `age_ns` is None if it was not measured."""

    rate_bps: int
    load_bps: int
    age_ns: int | None

    @property
    def share(self) -> float | None:
        """Utilisation; may exceed 1, as telemetry uses its own time windows. None if it was not measured."""
        return None if self.age_ns is None else self.load_bps / self.rate_bps


@dataclass(frozen=True, slots=True)
class PathShare:
    """The switches on a path, and the share of flows that take it, in (0, 1]."""

    switches: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class HostCost:
    """Costs of traffic from one host to another.

    `delay_ns` and `loss_ppb` are means over the paths, weighted by share; `available_bps` is the least on any of them:
    what a flow gets wherever the hash puts it. `paths` are sorted by descending share; if there are none, `delay_ns` is
    -1. `age_ns` is that of the oldest measured figure, None if there is none. `explicit` means that the path is a
    flow's own, not the result of weights and base routes. `access_measured` means that the sending host measured its
    own link, too: a measured bandwidth then covers the whole path.
    """

    src: str
    dst: str
    delay_ns: int
    available_bps: int
    loss_ppb: int
    age_ns: int | None
    delay_basis: Basis
    available_basis: Basis
    loss_basis: Basis
    paths: tuple[PathShare, ...]
    explicit: bool = False
    access_measured: bool = False

    @property
    def is_reachable(self) -> bool:
        """True if the destination is reachable."""
        return self.delay_ns != UNREACHABLE_NS
