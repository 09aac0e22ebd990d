"""Settings of the engine for Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Name
from dataplane.config import Settings, Strict

_Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$")]
"""Name of a partition, feature or account."""


class SlurmUnit(Strict, frozen=True):
    """Unit of a type: CPUs, memory and generic resources of one node."""

    partition: _Word
    cpus: Annotated[int, Meta(ge=1, le=4096)] = 1
    memory_mib: Count = 0
    """Memory of each unit; 0: the node's share by its CPUs."""
    features: Annotated[tuple[_Word, ...], Meta(max_length=16)] = ()
    """Features that nodes need to have units of this type."""
    gres: Annotated[dict[_Word, Annotated[int, Meta(ge=1, le=1024)]], Meta(max_length=8)] = msgspec.field(
        default_factory=dict
    )
    """Such as {gpu: 1}."""
    spans_nodes: bool = False
    """Make each unit of a job a separate task (`srun`), on any node, with MILLRACE_RANK and MILLRACE_WORLD_SIZE.

    Otherwise a job runs once, with the CPUs of all its units, on one node.
    """

    def __post_init__(self) -> None:
        if self.spans_nodes and self.gres:
            raise ValueError("spans_nodes: units with generic resources stay on one node")


class SlurmSettings(Settings, frozen=True):
    """The cluster, and the division of its nodes into units."""

    units: Annotated[dict[Name, SlurmUnit], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Empty: a type for each partition and each set of features and generic resources in it."""
    unit_cpus: Annotated[int, Meta(ge=1, le=4096)] = 1
    """CPUs of a unit, if `units` is not set."""
    configuration: Path | None = None
    """The file slurm.conf; null: as in SLURM_CONF, or where Slurm looks for it."""
    commands: Path | None = None
    """The folder of sbatch and the others; null: the PATH."""
    python: Path = msgspec.field(default_factory=lambda: Path("/usr/bin/python3"))
    """Python on the nodes: 3.7 or newer, only its standard library is used; it supervises a job."""
    user: _Word | None = None
    """User that jobs run as, if the agent is root; null: the agent's own."""
    unsafe_same_user: bool = False
    """Run jobs as root, if the agent is root and no `user` is named."""
    unsafe_trust_folders: bool = False
    """Trust a job's folder about its end once Slurm has forgotten the job; jobs of the same user can write there.

    If false, the job is lost, and its task dispatched again.
    """
    account: _Word | None = None
    qos: _Word | None = None
    reservation: _Word | None = None
    deadline_s: Annotated[float, Meta(gt=0, le=600)] = 15.0
    """Deadline of each command."""
    poll_s: Annotated[float, Meta(gt=0, le=600)] = 2.0
    """Polling interval of nodes and jobs."""
