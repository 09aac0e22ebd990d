"""Settings of the engine for Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Name
from dataplane.config import Strict

Amount = Annotated[float, Meta(ge=0, le=1e6)]


class RayUnit(Strict, frozen=True):
    """What a unit of a type is: so much of what Ray counts, all of one node."""

    cpus: Amount = 1.0
    gpus: Amount = 0.0
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    resources: Annotated[dict[str, Amount], Meta(max_length=16)] = msgspec.field(default_factory=dict)
    """What nodes were started with as `--resources`."""

    def __post_init__(self) -> None:
        if not any((self.cpus, self.gpus, *self.resources.values())):
            raise ValueError("a unit has cpus, gpus or resources")

    @property
    def needs(self) -> dict[str, float]:
        """It by the names that Ray has for what nodes have."""
        own = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory_mib << 20)}
        return {name: amount for name, amount in (own | self.resources).items() if amount}


class RaySettings(Strict, frozen=True):
    """The cluster, and how its nodes are divided into units."""

    address: Annotated[str, Meta(pattern=r"^https?://[^\s/]+/?$")] = "http://127.0.0.1:8265"
    """Of the dashboard, which serves jobs as well; anyone who reaches it without a token runs what he likes."""
    token_file: Path | None = None
    """The file of the cluster's token (RAY_AUTH_MODE=token); null: it wants none."""
    units: Annotated[dict[Name, RayUnit], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """None: `cpu`, one CPU, and for each custom resource a type with one of it and the CPUs that come with it."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """On the nodes: 3.7 or newer, nothing but its standard library is used; it watches over a job."""
    unsafe_trust_folders: bool = False
    """A job that Ray has forgotten ended as its folder says, where every job of the same user may write; false: it is
    lost, and its task dispatched again."""
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """For each request."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """How often nodes and jobs are looked at."""
