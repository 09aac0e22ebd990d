"""Settings of the engine for containers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import LabelName, LabelValue, Line, Name
from controller.apiserver.resources.hardware import Request
from dataplane.config import Strict


class ContainerUnit(Strict, frozen=True):
    """What a unit of a type is: so much of one node, held in that node's shares while a job runs."""

    request: Request
    """CPU time in thousandths of a core, memory, devices: of each unit."""
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Nodes without them have no unit of this type."""

    def __post_init__(self) -> None:
        if not self.request.cpu_milli and not self.request.memory_bytes and not self.request.devices:
            raise ValueError("request: a unit has CPU time, memory or devices")


class ContainersSettings(Strict, frozen=True):
    """Where pods are asked for, from which image, on which nodes."""

    image: Line | None = None
    """With Millrace and Python in it: of all jobs but those that bring an image of their own."""
    bundle: Line | None = None
    """In its place: the folder of an OCI bundle, the same on all nodes."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """In the image: 3.7 or newer; it unpacks a job's files, watches over it and packs what it leaves."""
    token_file: str | None = None
    """Of a token of the role user: a centre's own may make no pods; null: the one that MILLRACE_TOKEN_FILE names."""
    api: str | None = None
    """The API server of the nodes; null: the environment's, else the user's own socket."""
    units: Annotated[dict[Name, ContainerUnit], Meta(min_length=1, max_length=256)] = msgspec.field(
        default_factory=lambda: {"core": ContainerUnit(request=Request(cpu_milli=1000))}
    )
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Of this centre's nodes; none: all nodes are."""
    profile: Name = "default"
    """Of the scheduler that places the pods."""
    results_bytes: Annotated[int, Meta(ge=0, le=1 << 26)] = 1 << 22
    """Of what a job leaves in its folder so much is brought back, packed."""
    hold_s: Annotated[float, Meta(gt=0, le=1e6)] = 3600.0
    """How long a pod whose job has ended waits for what that has left to be fetched; it holds its units until then."""
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """For each request."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """How often nodes and pods are looked at."""

    def __post_init__(self) -> None:
        if self.image is not None and self.bundle is not None:
            raise ValueError("jobs run from either an image or a bundle")
