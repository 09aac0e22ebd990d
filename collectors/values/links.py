"""State of links: figures from telemetry with their sources, and reports of watchers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from collectors.figures import Figure, Merge, declared_figures
from dataplane.topology.values import LinkKey


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
