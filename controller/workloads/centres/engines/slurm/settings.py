"""Settings of the engine for Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Name
from dataplane.config import Strict

_Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
"""What partitions, features, accounts are called."""


class SlurmUnit(Strict, frozen=True):
    """What a unit of a type is: so many CPUs, so much memory and so many generic resources of one node."""

    partition: _Word
    cpus: Annotated[int, Meta(ge=1, le=4096)] = 1
    memory_mib: Count = 0
    """Of each; 0: the node's share, as there are CPUs."""
    features: Annotated[tuple[_Word, ...], Meta(max_length=16)] = ()
    """Nodes without one of them have no unit of this type."""
    gres: Annotated[dict[_Word, Annotated[int, Meta(ge=1, le=1024)]], Meta(max_length=8)] = msgspec.field(
        default_factory=dict
    )
    """Such as {gpu: 1}."""
    spans_nodes: bool = False
    """Each unit of a job is a task of its own (`srun`), on any node, told MILLRACE_RANK and MILLRACE_WORLD_SIZE; else
    a job runs once, with the CPUs of all its units, on one node."""

    def __post_init__(self) -> None:
        if self.spans_nodes and self.gres:
            raise ValueError("spans_nodes: units with generic resources stay on one node")


class SlurmSettings(Strict, frozen=True):
    """The cluster, and how its nodes are divided into units."""

    units: Annotated[dict[Name, SlurmUnit], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """None: for each partition, and each set of features and generic resources in it, a type of its own."""
    unit_cpus: Annotated[int, Meta(ge=1, le=4096)] = 1
    """CPUs of a unit, where `units` are not said."""
    configuration: Path | None = None
    """The file slurm.conf; null: as SLURM_CONF says, or where Slurm looks for it."""
    commands: Path | None = None
    """The folder of sbatch and the others; null: the PATH."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """On the nodes: 3.7 or newer, nothing but its standard library is used; it watches over a job."""
    user: _Word | None = None
    """The user that jobs run as, where the agent is root; null: the agent's own."""
    unsafe_same_user: bool = False
    """Jobs run as root, where the agent is root and no `user` is named."""
    unsafe_trust_folders: bool = False
    """A job that Slurm has forgotten ended as its folder says, where every job of the same user may write; false: it is
    lost, and its task dispatched again."""
    account: _Word | None = None
    qos: _Word | None = None
    reservation: _Word | None = None
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """For each command."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """How often nodes and jobs are looked at."""
