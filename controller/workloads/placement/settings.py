"""Settings of the workload controller."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dataplane.config import Settings, Strict

Share = Annotated[float, Meta(ge=0, le=1)]
PositiveS = Annotated[float, Meta(gt=0, le=1e9)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]


class MetricsSettings(Strict, frozen=True):
    """Endpoint of the workload controller's Prometheus metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9468


class SilenceSettings(Settings, frozen=True):
    """Detection of silent nodes, and the rate at which their pods are placed again."""

    margin_s: PositiveS = 5.0
    """Margin after a node's lease without a report, after which it is silent."""
    nodes_per_s: Rate = 1.0
    """Silent nodes per second whose pods are placed again, after an initial `burst`."""
    burst: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Silent nodes whose pods may be placed again at once."""
    partition_share: Share = 0.5
    """Share of silent nodes above which the network is taken to be at fault."""
    partition_nodes_per_s: Rate = 0.01
    """Nodes per second whose pods are then placed again; none if all are silent."""


class FlappingSettings(Settings, frozen=True):
    """A node that was silent `most` times within `window` gets no new pods until it was not for that long."""

    most: Annotated[int, Meta(ge=2, le=1000)] = 3
    window_s: PositiveS = 3600.0


class RetrySettings(Settings, frozen=True):
    """Retries of a group's pods that have failed on their node: up to `most` times, after growing waits."""

    most: Annotated[int, Meta(ge=0, le=1000)] = 6
    first_wait_s: PositiveS = 10.0
    longest_wait_s: PositiveS = 300.0


class PlacementSettings(Settings, frozen=True):
    """Settings of `millrace placement serve`."""

    api: str | None = None
    """The API server: unix:PATH, HOST:PORT or a URL; null: the environment's, else the user's own socket."""
    silence: SilenceSettings = SilenceSettings()
    """Nodes that do not report."""
    flapping: FlappingSettings = FlappingSettings()
    """Nodes that come and go."""
    retries: RetrySettings = RetrySettings()
    """Pods of groups that fail."""
    stuck_s: PositiveS = 60.0
    """Time beyond its grace after which a pod that a reporting node fails to stop is reported."""
    job_service: str | None = None
    """Address of the job service for pods: unix:PATH or HOST:PORT; for groups with `allreduce` that set none."""
    metrics: MetricsSettings | None = None
    """Endpoint of Prometheus metrics; null: none."""
