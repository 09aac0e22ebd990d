"""What `millrace fabric serve` reads."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from dataplane.config import Strict

Positive = Annotated[int, msgspec.Meta(ge=1)]


class Time(StrEnum):
    """Whose time a fabric runs in: its own, moved along the clock, or the kernel's between namespaces."""

    VIRTUAL = "virtual"
    KERNEL = "kernel"


class FabricSettings(Strict, frozen=True):
    """A fabric that stays up, and where what it has is to be found."""

    topology: str
    """The topology: a file, a bundled name, or a family such as fat-tree:k=4."""
    switches: str
    """The folder of the switches' P4Runtime sockets, NAME.sock each; made if it is missing."""
    time: Time = Time.VIRTUAL
    """virtual: one process, no root; kernel: namespaces, veth pairs and a process for each switch, as root."""
    reports: str | None = None
    """HOST:PORT of the collector, which gets what arrives at the topology's collector; default: nobody gets it."""
    demands: str | None = None
    """Demand matrix (CSV) that hosts send, for ever; default: hosts send nothing."""
    scale: Annotated[float, msgspec.Meta(gt=0)] = 1.0
    """Demands are multiplied by this."""
    frame_bytes: Annotated[int, msgspec.Meta(ge=100, le=9014)] = 1000
    """Size of the frames that hosts send."""
    seed: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Seed of arrivals and of the programs' random numbers."""
    p4info: str | None = None
    """P4Info of the program that the controller is going to push, and ..."""
    program: str | None = None
    """... its bmv2 JSON: compiled before the first switch serves, as that takes seconds where nothing is cached."""
    namespaces: str | None = None
    """A folder in which each host's name leads to its network namespace, in the kernel; default: none is made."""
    stats_file: str | None = None
    """File that gets the fabric's counters (JSON), every second."""
