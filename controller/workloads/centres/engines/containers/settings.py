"""Settings of the engine for containers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import LabelName, LabelValue, Line, Name
from controller.apiserver.resources.hardware import Request, check_kinds
from dataplane.config import Settings, Strict


class ContainerUnit(Strict, frozen=True):
    """Unit of a type: a part of one node, held in that node's shares while a job runs."""

    request: Request
    """CPU time in thousandths of a core, memory, devices: for each unit."""
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Nodes without them have no unit of this type."""

    def __post_init__(self) -> None:
        if not self.request.cpu_milli and not self.request.memory_bytes and not self.request.devices:
            raise ValueError("request: a unit has CPU time, memory or devices")
        check_kinds(self.request)


class ContainersSettings(Settings, frozen=True):
    """Source of pods: the API server, the image, the nodes."""

    image: Line | None = None
    """Image with Millrace and Python for all jobs without an image of their own."""
    bundle: Line | None = None
    """In place of an image: the folder of an OCI bundle, the same on all nodes."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """Python in the image: 3.7 or newer; it unpacks a job's files, supervises it and packs its results."""
    token_file: str | None = None
    """File of a token with role user: a centre's own may make no pods; null: the one that MILLRACE_TOKEN_FILE names."""
    api: str | None = None
    """API server of the nodes; null: the environment's, else the user's own socket."""
    units: Annotated[dict[Name, ContainerUnit], Meta(min_length=1, max_length=256)] = msgspec.field(
        default_factory=lambda: {"core": ContainerUnit(request=Request(cpu_milli=1000))}
    )
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Labels of this centre's nodes; none: all nodes."""
    profile: Name = "default"
    """Profile of the scheduler that places the pods."""
    results_bytes: Annotated[int, Meta(ge=0, le=1 << 26)] = 1 << 22
    """Most bytes, packed, fetched from a job's folder."""
    hold_s: Annotated[float, Meta(gt=0, le=1e6)] = 3600.0
    """Time that the pod of an ended job waits, holding its units, for its results to be fetched."""
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Deadline of each request."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """Polling interval of nodes and pods."""

    def __post_init__(self) -> None:
        if self.image is not None and self.bundle is not None:
            raise ValueError("jobs run from either an image or a bundle")
