"""Settings of `millrace fabric serve`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from dataplane.config import Strict

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Time(StrEnum):
    """Time source of a fabric: virtual time paced by the clock, or the kernel's, between namespaces."""

    VIRTUAL = "virtual"
    KERNEL = "kernel"


class FabricMetrics(Strict, frozen=True):
    """Settings of the endpoint that serves the metrics of a fabric and its switches to Prometheus."""

    address: str = "127.0.0.1"
    """The local address; nothing authenticates, so any other than loopback must be explicit: `plain:0.0.0.0`."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 9475
    """The TCP port, 0 for a free one."""


class FabricSettings(Strict, frozen=True):
    """A long-running fabric and the paths where its parts can be found."""

    topology: str
    """The topology: a file, a bundled name, or a family such as fat-tree:k=4."""
    switches: str
    """Folder of the switches' P4Runtime sockets, one NAME.sock each; created if missing."""
    time: Time = Time.VIRTUAL
    """virtual: one process, no root; kernel: namespaces, veth pairs and a process for each switch, as root."""
    reports: str | None = None
    """HOST:PORT of the collector that receives the reports arriving at the topology's collector host; default: none."""
    demands: str | None = None
    """Demand matrix (CSV) that hosts send continuously; default: hosts send nothing."""
    scale: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Factor that demands are multiplied by."""
    frame_bytes: Annotated[int, msgspec.Meta(ge=100, le=9014)] = 1000
    """Size of the frames that hosts send."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Seed for arrivals and for the programs' random numbers."""
    p4info: str | None = None
    """P4Info of the program that the controller will push; used with `program`."""
    program: str | None = None
    """bmv2 JSON of that program: compiled before the first switch serves, as that takes seconds with a cold cache."""
    namespaces: str | None = None
    """Folder of links from host names to their network namespaces (kernel time only); default: none is created."""
    stats_file: str | None = None
    """File that receives the fabric's counters (JSON) every second."""
    metrics: FabricMetrics | None = None
    """Prometheus endpoint; default: none."""
