"""Settings of the scheduler's daemon."""

from __future__ import annotations

import socket
from typing import Annotated

import msgspec
from msgspec import Meta, field

from collectors.settings import Positive
from controller.cluster.network_state.settings import NetworkStateSettings
from controller.scheduling.dispatch.settings import TaskSettings
from controller.scheduling.framework.profiles import ACCELERATED, ProfileSettings
from dataplane.config import Strict


class MetricsSettings(Strict, frozen=True):
    """Where Prometheus finds the scheduler's metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9467


class QueueSettings(Strict, frozen=True):
    """How pods wait. One that was refused is looked at again when something changes, at the soonest after a wait.

    The wait doubles with each refusal from `first_wait_ns` to `longest_wait_ns`; after the longest it is looked at
    without a change, too. Of more than `most` pods that wait, the others are looked at when these are fewer.
    """

    most: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    first_wait_ns: Positive = 100_000_000
    longest_wait_ns: Positive = 30_000_000_000


class SchedulerSettings(Strict, frozen=True):
    """What `millrace scheduler serve` is given."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    profiles: Annotated[tuple[ProfileSettings, ...], Meta(min_length=1)] = field(
        default_factory=lambda: (ProfileSettings(), ACCELERATED)
    )
    """Ways to decide; a pod names its own. Pods of other profiles are left to other schedulers."""
    topology: str | None = None
    """A topology file or a bundled one's name: what lies between nodes; null: nothing is known of the network."""
    network: NetworkStateSettings | None = None
    """Where the network's state comes from; null: the topology's nominal figures are what is known."""
    queue: QueueSettings = msgspec.field(default_factory=QueueSettings)
    metrics: MetricsSettings | None = None
    """Where Prometheus finds metrics; null: nowhere."""
    tasks: TaskSettings | None = None
    """How tasks are dispatched to compute centres; null: tasks are left to other schedulers."""
    name: str = field(default_factory=socket.gethostname)
    """Who stands in decisions as the scheduler."""
    explained_nodes: Annotated[int, Meta(ge=1, le=256)] = 8
    """Of so many nodes, refused and scored ones, a decision keeps the reasons."""
