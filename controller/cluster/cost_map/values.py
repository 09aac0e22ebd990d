"""Values of the cost map: what a host meets on the way to another one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNLIMITED_BPS: Final = 1 << 62
"""The bandwidth from a host to itself: no link limits it."""
UNREACHABLE_NS: Final = -1
"""The delay between hosts that nothing leads between; their free bandwidth is 0 and their loss all packets."""
NEVER_NS: Final = -1
"""The age where no figure was ever measured."""
_NS_PER_S: Final = 1_000_000_000
PPB: Final = 1_000_000_000
"""Loss is counted in packets of so many."""


class Basis(StrEnum):
    """Where a figure comes from: telemetry of all links that carry it, of some of them, or configuration alone.

    A host's link towards its switch is not measured by switches, so it does not count here; see `access_measured`.
    """

    MEASURED = "measured"
    PARTLY_MEASURED = "partly measured"
    NOMINAL = "nominal"


@dataclass(frozen=True, slots=True)
class Load:
    """Traffic from one host to another that is to be added to what links carry, bit/s on the wire."""

    src: str
    dst: str
    rate_bps: int


@dataclass(frozen=True, slots=True)
class HostLinkState:
    """What a host's own counters say of the link by which it sends: what is free of it (bit/s), and how old that is.

    No switch measures that link; the other direction is its switch's.
    """

    host: str
    available_bps: int
    age_ns: int

    @classmethod
    def of_counters(cls, host: str, rate_bps: int, sent_bytes: int, interval_ns: int, age_ns: int) -> HostLinkState:
        """Return what bytes sent in an interval leave free of a link's rate; ValueError for what no counter says."""
        if sent_bytes < 0 or interval_ns <= 0:
            raise ValueError(f"host {host}: {sent_bytes} bytes sent in {interval_ns} ns")
        used_bps = 8 * sent_bytes * _NS_PER_S // interval_ns
        return cls(host, max(0, rate_bps - used_bps), age_ns)


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one link carries of what it could; `age_ns` is None where nobody measured it."""

    rate_bps: int
    load_bps: int
    age_ns: int | None

    @property
    def share(self) -> float | None:
        """Of its rate; may exceed 1, as telemetry measures over windows of its own. None where nobody measured it."""
        return None if self.age_ns is None else self.load_bps / self.rate_bps


@dataclass(frozen=True, slots=True)
class PathShare:
    """The switches that packets cross, and the share of flows that do, in (0, 1]."""

    switches: tuple[str, ...]
    share: float


@dataclass(frozen=True, slots=True)
class HostCost:
    """What traffic from one host to another meets.

    `delay_ns` and `loss_ppb` are means over the paths by their shares, `available_bps` is the least that is free on
    any of them: what a flow gets wherever the hash puts it. `paths` begin with the largest share; they are empty where
    nothing leads there, and `delay_ns` is then -1. `age_ns` is that of the oldest measured figure, None if there is
    none. `explicit` says that the path is a flow's own, not what weights and base routes give. `access_measured` says
    that the sending host measured its own link, too: a bandwidth that is measured is so for the whole way.
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
        """Whether anything leads there."""
        return self.delay_ns != UNREACHABLE_NS
