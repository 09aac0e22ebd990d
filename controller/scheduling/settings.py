"""Settings of the scheduler daemon."""

from __future__ import annotations

import socket
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from collectors.settings import Positive
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.common.standby.settings import StandbySettings
from controller.scheduling.pods import PodProfileSettings
from controller.scheduling.pods.profiles import ACCELERATED, STANDARD
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.config import Settings, Strict


class MetricsSettings(Strict, frozen=True):
    """Settings of the scheduler's Prometheus metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9467


class QueueSettings(Settings, frozen=True):
    """Settings of the queue of pods. A refused pod is tried again when something changes, but only after a wait.

    The wait doubles with each refusal from `first_wait` to `longest_wait`; after the longest, the pod is tried
    even without a change. Beyond `most` waiting pods, the others are considered when there are fewer.
    """

    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    first_wait_ns: Positive = 100_000_000
    longest_wait_ns: Positive = 30_000_000_000


RELOADED: Final = ("profiles", "tasks.scoring")
"""Keys that SIGHUP applies."""


class SchedulerSettings(Strict, frozen=True):
    """Settings of `millrace scheduler serve`."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    profiles: Annotated[tuple[PodProfileSettings, ...], Meta(min_length=1)] = field(
        default_factory=lambda: (STANDARD, ACCELERATED)
    )
    """Ways to decide; a pod names its own. Pods of other profiles are left to other schedulers."""
    topology: str | None = None
    """A topology file or the name of a bundled one: the network between nodes; null: the network is unknown."""
    network: NetworkStateSettings | None = None
    """Source of the network's state; null: the topology's nominal figures."""
    queue: QueueSettings = msgspec.field(default_factory=QueueSettings)
    metrics: MetricsSettings | None = None
    """Address of the Prometheus metrics; null: none."""
    tasks: TaskSettings | None = None
    """Settings for dispatching tasks to compute centres; null: tasks are left to other schedulers."""
    standby: StandbySettings | None = None
    """The lease of a pair of schedulers; null: this one runs alone."""
    name: str = field(default_factory=socket.gethostname)
    """Name of the scheduler in decisions."""
    explained_nodes: Annotated[int, Meta(ge=1, le=256)] = 8
    """Number of nodes, refused and scored, whose reasons a decision keeps."""
