"""The network's state at one instant, and what the collector and deciders tell each other of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from collectors.values.jobs import JobKey, JobState
from collectors.values.links import LinkState, LinkStatus
from collectors.values.records import FlowKey
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.notebook import milliseconds, table_html
from dataplane.topology.values import LinkKey

_SHOWN_LINKS: Final = 20


@dataclass(frozen=True, slots=True)
class PathState:
    """The switches that a flow's packets were last seen to cross, with delay (ns) and bottleneck (bit/s).

    `rate_bps` is the flow's rate, IP packets with their Ethernet framing, estimated from the packets that carried
    telemetry; None while too few have. `delay_ns` is the mean of whole packets' delays where `samples` is not 0, else
    the sum of the links' means; `loss` a share of packets, None when unknown. `measured_bytes` are those of the packets
    behind the rate: if few, it is uncertain. The rate of a young flow is over the time since its first packet, and
    counts that packet, too. `gap_mean_ns` is the mean gap between measured packets, by the first switch's stamps, None
    before the first gap; `gap_variation` is the gaps' variance as a share of its square, at most 1: that of random
    arrivals.
    """

    flow: FlowKey
    switches: tuple[str, ...]
    delay_ns: int
    bottleneck_bps: int
    age_ns: int
    rate_bps: int | None = None
    delay_p50_ns: int | None = None
    delay_p99_ns: int | None = None
    loss: float | None = None
    samples: int = 0
    measured_bytes: int = 0
    is_young: bool = False
    gap_mean_ns: int | None = None
    gap_variation: float = 1.0


@dataclass(frozen=True, slots=True)
class ReporterState:
    """Sequence accounting of one (node id, hardware id): what came, what is missing, late or twice.

    `contested` counts numbers that came again with other content: another sender reports in the switch's name.
    """

    node_id: int
    hw_id: int
    received: int
    lost: int
    late: int
    duplicate: int
    restarts: int
    contested: int = 0


@dataclass(frozen=True, slots=True)
class ClockState:
    """A switch's clock against that of its group's reference: reading minus the reference's, at the snapshot's time.

    Clocks of one group, named by its lowest node id, are comparable; `drift_ppb` is how fast the offset grows;
    `uncertainty_ns` bounds the error that queueing and asymmetry can explain.
    """

    node_id: int
    group: int
    offset_ns: int
    drift_ppb: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The network's state at one instant; every decider takes it as an argument and keeps no other state of it.

    `statuses` has the watched links that were reported recently; all others are unknown.
    """

    taken_ns: int
    links: Mapping[LinkKey, LinkState]
    paths: Mapping[FlowKey, PathState]
    reporters: Mapping[tuple[int, int], ReporterState]
    clocks: Mapping[int, ClockState] = field(default_factory=dict)
    jobs: Mapping[JobKey, JobState] = field(default_factory=dict)
    statuses: Mapping[LinkKey, LinkStatus] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        """Show the fullest links in a notebook."""
        links = sorted(self.links.values(), key=lambda link: (link.age_ns is not None, link.utilisation), reverse=True)
        rows = (
            (
                *(link.link, f"{link.utilisation:.1%}", milliseconds(link.delay_mean_ns)),
                *(None if link.loss is None else f"{link.loss:.2%}", milliseconds(link.age_ns)),
                self.statuses[link.link].condition.value if link.link in self.statuses else None,
            )
            for link in links[:_SHOWN_LINKS]
        )
        caption = f"{min(len(links), _SHOWN_LINKS)} fullest of {len(links)} links; {len(self.paths)} flows"
        return table_html(caption, ("link", "in use", "delay ms", "loss", "age ms", "state"), rows)


@dataclass(frozen=True, slots=True)
class NetworkSignals:
    """Signs, since the last query, that the network has changed; queues are those between switches.

    `queue_frames` is the most frames that a packet met in one, None if no packet reported any; `queue_reported` says
    that a switch reported a congested queue, `queue_full` that one refused a packet. `grown` are flows that send
    considerably more than in the last round of decisions, with the increase in measured packets per second; `unlisted`
    is the number of flows that grew but are not listed.
    """

    queue_frames: int | None = None
    queue_reported: bool = False
    queue_full: bool = False
    grown: Mapping[FlowKey, float] = field(default_factory=dict)
    unlisted: int = 0


@dataclass(frozen=True, slots=True)
class FlowMove:
    """A decision about a flow's path, as a path server reports it: hosts and switches by name, `time_ns` since 1970.

    Protocol and ports are None for all traffic between two hosts. `gain_ns` is by how much the new path was shorter,
    None where that was not the reason.
    """

    time_ns: int
    src_host: str
    dst_host: str
    protocol: int | None
    src_port: int | None
    dst_port: int | None
    old_path: tuple[str, ...]
    new_path: tuple[str, ...]
    reason: str
    gain_ns: int | None = None


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """Counters by name (see `collectors.counters`), why the last bad report was refused, and the collector's load."""

    taken_ns: int
    counters: Mapping[str, int]
    last_problem: str | None
    load: DaemonLoad = NO_LOAD
