"""Values that pass from telemetry to deciders: hop records and frozen snapshots of the network's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Final

from collectors.figures import Figure, Merge, declared_figures
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.notebook import milliseconds, table_html
from dataplane.topology.values import LinkKey

_SHOWN_LINKS: Final = 20


@dataclass(frozen=True, slots=True)
class FlowKey:
    """A flow's 5-tuple; addresses of one family, ports 0 where the protocol has none."""

    src: IPv4Address | IPv6Address
    dst: IPv4Address | IPv6Address
    protocol: int
    src_port: int
    dst_port: int

    def __str__(self) -> str:
        return f"{self.src}:{self.src_port}->{self.dst}:{self.dst_port}/{self.protocol}"


class RecordKind(IntEnum):
    """Kind of report that a hop's record is from, which determines what it says of the packet's path."""

    STACK = 0
    """A sink's (INT-MD): all hops, but those that an intermediate report had already taken off the packet."""

    HOP_BY_HOP = 1
    """One hop of several that report each for themselves, in our domain; the hop's place is known."""

    INTERMEDIATE = 2
    """The hops until a switch that took them off the packet, itself the last of them; more follow."""

    MX = 3
    """One hop of a packet with embedded instructions; adjacency gives its place."""

    XD = 4
    """One hop of a packet that carries nothing; adjacency gives its place."""

    QUEUE = 5
    """Report of a congested queue, for a packet that is not tracked: shows nothing of the packet's path."""


@dataclass(frozen=True, slots=True)
class HopRecord:
    """One hop of one measured packet: a row of the record table. Times in ns, None where the hop did not report them.

    `hop_index` counts from 0 at the source, and is 0 where `kind` does not give the position; `hop_count` is None where
    a report does not show the whole path, except on the path's last hop; `packet_id` is equal in the records of one
    packet and distinguishes the packets of a flow.
    """

    received_ns: int
    flow: FlowKey
    reporter_id: int
    sequence: int
    hop_index: int
    hop_count: int | None
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    hop_latency_ns: int | None
    queue_id: int | None
    queue_occupancy_frames: int | None
    ingress_timestamp_ns: int | None
    egress_timestamp_ns: int | None
    tx_bytes_per_window: int | None
    packet_id: int = 0
    kind: RecordKind = RecordKind.STACK
    buffer_occupancy_frames: int | None = None


@dataclass(frozen=True, slots=True)
class DropRecord:
    """A packet that a switch dropped, by its own report; figures that the report does not state are None.

    `reason` is a code of `dataplane.wire.drop_reasons`; `flow` is None where the packet was cut before its addresses;
    `tracked` says that telemetry was requested for this flow, so its packets are also counted elsewhere.
    """

    received_ns: int
    reporter_id: int
    sequence: int
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    queue_id: int | None
    reason: int
    flow: FlowKey | None
    timestamp_ns: int | None = None
    tracked: bool = False


class DelaySource(StrEnum):
    """Source of a link's delay.

    Stamps of both ends by one clock; such stamps by two clocks whose offset was estimated; probe packets; the tail's
    hop latency plus the configured propagation; or no data.
    """

    STAMPS = "stamps"
    CORRECTED_STAMPS = "corrected-stamps"
    PROBES = "probes"
    HOP_LATENCY = "hop-latency"
    NOMINAL = "nominal"


class LossSource(StrEnum):
    """Source of a loss.

    Switches' reports of drops; packets that one end of a link reported and not both; or devices' own counters of frames
    that they discarded, or received with errors.
    """

    DROP_REPORTS = "drop-reports"
    PACKET_COUNTS = "packet-counts"
    INTERFACE_COUNTERS = "interface-counters"


class LoadSource(StrEnum):
    """Source of a link's load: the byte counts in telemetry, or the interface counters that a device exports."""

    TELEMETRY = "telemetry"
    GNMI = "gnmi"
    SFLOW = "sflow"
    OTLP = "otlp"


@dataclass(frozen=True, slots=True)
class LinkState:
    """A directed link: time from arrival at its tail switch to arrival at its head, queue included.

    `age_ns` is None when no telemetry ever came (all figures are then the topology's nominal ones); `utilisation` is
    a share of the rate; `loss` a share of frames, None when unknown. `delay_ewma_ns` weighs new samples more,
    `delay_max_ns` is the window's greatest; `delay_uncertainty_ns` is by how much all delays may be off together, None
    when unknown. `buffer_occupancy_frames` is the tail switch's, over all its ports. `lost_packets` were reported
    as lost since the collector began, None where `loss` is unknown. `newest_delay_ns`, `newest_queue_frames` and
    `newest_utilisation` are of the newest part of the window (1/8 of it; one window of the switch's own for the load):
    noisier than the means, and half a second ahead of them.
    """

    link: LinkKey
    rate_bps: Annotated[int, Figure("rate of the link", Merge.GREATEST, metric="rate_bps")]
    delay_mean_ns: Annotated[
        int, Figure("mean delay", Merge.BY_SAMPLES, metric="delay_seconds", statistic="mean", is_watched=True)
    ]
    delay_p50_ns: Annotated[
        int, Figure("median delay", Merge.MEDIAN, metric="delay_seconds", statistic="p50", is_watched=True)
    ]
    delay_p99_ns: Annotated[
        int,
        Figure(
            "99th percentile of the delay",
            Merge.PERCENTILE_99,
            metric="delay_seconds",
            statistic="p99",
            is_watched=True,
        ),
    ]
    queue_occupancy_frames: Annotated[
        float,
        Figure(
            "mean queue that packets found",
            Merge.BY_SNAPSHOTS,
            greatest="queue_max_frames",
            metric="queue_frames",
            is_watched=True,
        ),
    ]
    utilisation: Annotated[
        float,
        Figure(
            "share of the rate in use",
            Merge.BY_SNAPSHOTS,
            greatest="utilisation_max",
            metric="utilisation_ratio",
            is_watched=True,
        ),
    ]
    available_bps: Annotated[
        int, Figure("rate not in use", Merge.BY_SNAPSHOTS, metric="available_bps", is_watched=True)
    ]
    loss: Annotated[
        float | None, Figure("share of frames lost", Merge.BY_SAMPLES, metric="loss_ratio", is_watched=True)
    ]
    age_ns: Annotated[
        int | None, Figure("time since the newest sample", Merge.LEAST, metric="age_seconds", is_watched=True)
    ]
    samples: Annotated[
        int,
        Figure("delays behind the figures, 0 for nominal ones", Merge.SUM, metric="samples", is_watched=True),
    ]
    source: Annotated[DelaySource, Figure("source of the delay", Merge.NEWEST)]
    delay_ewma_ns: Annotated[
        int | None,
        Figure(
            "exponentially weighted mean delay",
            Merge.NEWEST,
            metric="delay_seconds",
            statistic="ewma",
            is_watched=True,
        ),
    ] = None
    delay_max_ns: Annotated[
        int | None,
        Figure("greatest delay", Merge.MEASURED_GREATEST, metric="delay_seconds", statistic="max", is_watched=True),
    ] = None
    delay_uncertainty_ns: Annotated[
        int | None,
        Figure(
            "largest error of all delays together",
            Merge.GREATEST,
            metric="delay_uncertainty_seconds",
            is_watched=True,
        ),
    ] = None
    loss_source: Annotated[LossSource | None, Figure("source of the loss", Merge.NEWEST)] = None
    buffer_occupancy_frames: Annotated[
        float | None,
        Figure("mean buffer of the sending switch", Merge.BY_SNAPSHOTS, metric="buffer_frames", is_watched=True),
    ] = None
    lost_packets: Annotated[int | None, Figure("packets lost since the collector began")] = None
    newest_delay_ns: Annotated[int | None, Figure("mean delay in the newest part of the window")] = None
    newest_queue_frames: Annotated[float | None, Figure("mean queue in the newest part of the window")] = None
    newest_utilisation: Annotated[float | None, Figure("share of the rate in use, the newest reading")] = None
    load_source: Annotated[LoadSource | None, Figure("source of the load", Merge.NEWEST)] = None


LINK_FIGURES: Final = declared_figures(LinkState)
"""Figures of links by name. A new one is a field with its `Figure`, and what computes it."""


class LinkCondition(StrEnum):
    """Ability of a directed link to carry packets, according to the watchers of the ports at its ends."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """Controller's report on a directed link: its condition, how long it has lasted (ns), and the cause.

    The cause is why the link is down, or `drained` for one that works and is drained; else it is empty.

    It follows from port states and from hellos between the switches, never from traffic or its absence.
    """

    condition: LinkCondition
    age_ns: int
    cause: str = ""


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
class JobKey:
    """A job in one of the switches that add up for it."""

    job: int
    switch: str

    def __str__(self) -> str:
        return f"job {self.job} at {self.switch}"


@dataclass(frozen=True, slots=True)
class ChildKey:
    """Contributor to a job at a switch: a host, or a switch that adds up a rack, by its number in the job there."""

    job: int
    switch: str
    number: int
    name: str

    def __str__(self) -> str:
        return f"job {self.job} at {self.switch}: {self.name}"


@dataclass(frozen=True, slots=True)
class JobNote:
    """Job details known only to its operator: its name, its epoch, and its number of cells in each switch."""

    name: str
    epoch: int | None = None
    cells: int | None = None


@dataclass(frozen=True, slots=True)
class ChildState:
    """Waits caused by a child that was the last contributor to items: stragglers.

    `last` counts since the job was first heard of, all others are of the window. Mean and greatest wait are those of
    the items for which it was last, None if there are none; `wait_caused_ns` is the wait it caused, averaged over all
    items of the job. `samples` are the items reported, whichever child was last.
    """

    key: ChildKey
    last: int
    last_share: float
    wait_mean_ns: int | None
    wait_max_ns: int | None
    wait_caused_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in one switch, by its reports of complete items; waits are from an item's first contribution to its last.

    `items` (by their numbers), `reported` and `repeated` (contributions that had come before) count since the job was
    first heard of, all other figures are of the window. `items_per_s` is up to now, None while only one item was
    reported; `cells_used` the most cells in use at once; `samples` the items reported. `children` begin with the one
    that causes most of the waiting. `name`, `epoch` and `cells` are None unless they were given.
    """

    key: JobKey
    name: str | None
    epoch: int | None
    cells: int | None
    is_leaf: bool
    items: int
    items_per_s: float | None
    reported: int
    repeated: int
    repeated_per_item: float
    cells_used: int
    wait_mean_ns: int
    wait_p50_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    samples: int
    age_ns: int
    children: tuple[ChildState, ...] = ()


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


@dataclass(frozen=True, slots=True)
class ReporterKey:
    """A reporter as an event's subject."""

    node_id: int
    hw_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} hw {self.hw_id}"


Subject = LinkKey | FlowKey | ReporterKey | JobKey | ChildKey
"""Subject of an event."""


class Severity(StrEnum):
    """Urgency of an event."""

    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Phase of an event: something began, or it ended."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure of the event's subject at a time: the watched figure, or context."""

    time_ns: int
    figure: str
    value: float


@dataclass(frozen=True, slots=True)
class EventNote:
    """Acknowledgement of an event: by whom, in which words, and when (ns since 1970)."""

    by: str
    text: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """A rule's verdict on one figure of one subject; `evidence` oldest first, the rule's own figure among it.

    `threshold` is what `value` crossed: the rule's limit, its clear limit, or a change point's level before the change.
    `note` is None until somebody has acknowledged the event.
    """

    time_ns: int
    rule: str
    subject: Subject
    figure: str
    value: float
    threshold: float
    phase: Phase
    evidence: tuple[Evidence, ...] = ()
    note: EventNote | None = None
    severity: Severity = Severity.WARNING
