"""Settings of the engine for Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Name
from dataplane.config import Settings, Strict

Amount = Annotated[float, Meta(ge=0, le=1e6)]


class RayUnit(Strict, frozen=True):
    """Unit of a type: an amount of what Ray counts, all on one node."""

    cpus: Amount = 1.0
    gpus: Amount = 0.0
    memory_mib: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    resources: Annotated[dict[str, Amount], Meta(max_length=16)] = msgspec.field(default_factory=dict)
    """Resources that nodes were started with by `--resources`."""

    def __post_init__(self) -> None:
        if not any((self.cpus, self.gpus, *self.resources.values())):
            raise ValueError("a unit has cpus, gpus or resources")

    @property
    def needs(self) -> dict[str, float]:
        """Resources of the unit by Ray's names for those of nodes."""
        own = {"CPU": self.cpus, "GPU": self.gpus, "memory": float(self.memory_mib << 20)}
        return {name: amount for name, amount in (own | self.resources).items() if amount}


class RaySettings(Settings, frozen=True):
    """The cluster, and the division of its nodes into units."""

    address: Annotated[str, Meta(pattern=r"^https?://[^\s/]+/?$")] = "http://127.0.0.1:8265"
    """Address of the dashboard, which also serves jobs; anyone who reaches it without a token can run anything."""
    token_file: Path | None = None
    """File of the cluster's token (RAY_AUTH_MODE=token); null: it needs none."""
    units: Annotated[dict[Name, RayUnit], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Empty: `cpu`, one CPU, and a type for each custom resource, with one of it and its share of the CPUs."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """Python on the nodes: 3.7 or newer, only its standard library is used; it supervises a job."""
    unsafe_trust_folders: bool = False
    """Trust a job's folder about its end once Ray has forgotten the job; jobs of the same user can write there.

    If false, the job is lost, and its task dispatched again.
    """
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Deadline of each request."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """Polling interval of nodes and jobs."""
