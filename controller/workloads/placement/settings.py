"""Settings of the workload controller."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dataplane.config import Strict

Share = Annotated[float, Meta(ge=0, le=1)]
PositiveS = Annotated[float, Meta(gt=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]


class MetricsSettings(Strict, frozen=True):
    """Where Prometheus finds the workload controller's metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9468


class SilenceSettings(Strict, frozen=True):
    """When a node is silent, and how fast pods of silent nodes are placed again."""

    margin_s: PositiveS = 5.0
    """A node is silent when its lease and this time have passed without a report of it."""
    nodes_per_s: Rate = 1.0
    """So many silent nodes have their pods placed again in a second, once `burst` have at once."""
    burst: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """So many silent nodes have their pods placed again at once."""
    partition_share: Share = 0.5
    """Where more of the nodes than this share is silent, it is taken for the network's fault."""
    partition_nodes_per_s: Rate = 0.01
    """Then so many nodes a second have their pods placed again, and none where all are silent."""


class FlappingSettings(Strict, frozen=True):
    """A node that was silent `most` times within `window_s` gets no new pods, until it was not for so long."""

    most: Annotated[int, Meta(ge=2, le=1000)] = 3
    window_s: PositiveS = 3600.0


class RetrySettings(Strict, frozen=True):
    """How pods of a group that have failed on their node are placed again: up to `most` times, after growing waits."""

    most: Annotated[int, Meta(ge=0, le=1000)] = 6
    first_wait_s: PositiveS = 10.0
    longest_wait_s: PositiveS = 300.0


class PlacementSettings(Strict, frozen=True):
    """What `millrace placement serve` is given."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    silence: SilenceSettings = SilenceSettings()
    """Nodes that do not report."""
    flapping: FlappingSettings = FlappingSettings()
    """Nodes that come and go."""
    retries: RetrySettings = RetrySettings()
    """Pods of groups that fail."""
    stuck_s: PositiveS = 60.0
    """A pod that a node which reports has been stopping for so long is told of, beyond what it may take."""
    job_service: str | None = None
    """Where pods reach the job service: unix:PATH or HOST:PORT; for groups with `allreduce` that do not say it."""
    metrics: MetricsSettings | None = None
    """Where Prometheus finds metrics; null: nowhere."""
