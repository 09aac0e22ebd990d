"""Pod: containers that run on one host."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import (
    Count,
    Kind,
    LabelName,
    LabelValue,
    Line,
    Lines,
    Name,
    Priority,
    Resource,
    Seconds,
    Secrets,
    Text,
    TimeNs,
)
from controller.apiserver.resources.hardware import DeviceNumber, DeviceShares, Load, Request
from controller.apiserver.resources.operator_devices import OperatorDevices
from controller.apiserver.resources.task import OperatorCount
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


class Restart(StrEnum):
    """Restart policy of ended containers."""

    ALWAYS = "always"
    ON_FAILURE = "on-failure"
    NEVER = "never"


class Phase(StrEnum):
    """Phase in the life of a pod."""

    PENDING = "pending"
    BOUND = "bound"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    LOST = "lost"


class Container(Strict, frozen=True):
    """A container, from an image or an OCI bundle in a folder."""

    name: Name
    image: Line | None = None
    bundle: Line | None = None
    command: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    environment: Annotated[dict[Line, Text], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    secrets: Secrets = msgspec.field(default_factory=dict)
    working_folder: Line | None = None

    def __post_init__(self) -> None:
        if (self.image is None) == (self.bundle is None):
            raise ValueError("a container has either an image or a bundle")


class Location(Strict, frozen=True):
    """Required location: every part given must match, or the pod is refused with the reason."""

    node: Name | None = None
    device: DeviceNumber | None = None
    device_kind: DeviceKind | None = None


class PeerNeed(Strict, frozen=True):
    """Requirements on the path to a peer, in both directions: another pod, or a host of the topology."""

    pod: Name | None = None
    host: Name | None = None
    min_bps: Count = 0
    max_delay_ns: Count | None = None

    def __post_init__(self) -> None:
        if (self.pod is None) == (self.host is None):
            raise ValueError("a peer is either a pod or a host")


class PodSpec(Strict, frozen=True):
    """Containers to run and their requirements."""

    containers: Annotated[tuple[Container, ...], Meta(min_length=1, max_length=16)]
    request: Request = Request()
    location: Location | None = None
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Labels that the node must have."""
    peers: Annotated[tuple[PeerNeed, ...], Meta(max_length=256)] = ()
    priority: Priority = 0
    idle_limit_s: Seconds | None = None
    """A pod that is idle for this long is removed."""
    restart: Restart = Restart.ALWAYS
    stop_grace_s: Annotated[float, Meta(ge=0, le=86_400)] = 10.0
    """Time between asking its containers to stop and killing them."""
    group: Name | None = None
    profile: Name = "default"
    """Profile of the scheduler that places it."""
    operators: Annotated[tuple[OperatorCount, ...], Meta(max_length=1024)] = ()
    """Operators that its containers compute together, as far as known."""

    def __post_init__(self) -> None:
        names = [container.name for container in self.containers]
        if len(set(names)) != len(names):
            raise ValueError("two containers have the same name")


class ContainerStatus(Strict, frozen=True):
    """State of a container."""

    name: Name
    state: Name
    runtime_id: Line = ""
    image_digest: Line = ""
    exit_code: int | None = None
    restarts: Count = 0
    started_ns: TimeNs | None = None
    reason: Line = ""


class PodStatus(Strict, frozen=True):
    """Location and state.

    Bindings and releases write node, devices, operator_devices, epoch and decision; evictions write `then` and
    `nominated`.
    """

    phase: Phase = Phase.PENDING
    node: Name | None = None
    devices: DeviceShares = ()
    operator_devices: OperatorDevices = ()
    """Device per operator, chosen by the scheduler among the devices that it holds."""
    epoch: Count = 0
    """Number of bindings so far: containers started under an earlier one must stop."""
    decision: Name | None = None
    bound_ns: TimeNs | None = None
    then: Phase | None = None
    """Phase that an evicted pod enters once its node has released it; until then it is stopping."""
    nominated: Name | None = None
    """For a waiting pod: the node on which others make room for it."""
    started_ns: TimeNs | None = None
    finished_ns: TimeNs | None = None
    containers: Annotated[tuple[ContainerStatus, ...], Meta(max_length=16)] = ()
    load: Load | None = None
    reasons: Lines = ()
    """Reasons to wait, stop or end, by the last writer of the status; a binding clears them."""
    retries: Count = 0
    """Number of times it was placed again after failing on its node."""


class Pod(Resource, frozen=True):
    """Containers that run on one host."""

    spec: PodSpec
    status: PodStatus = PodStatus()
    kind: Literal["Pod"] = "Pod"


POD = Kind(
    "Pod",
    "pods",
    Pod,
    fields={
        "node": lambda pod: pod.status.node,
        "phase": lambda pod: pod.status.phase.value,
        "group": lambda pod: pod.spec.group,
        "profile": lambda pod: pod.spec.profile,
    },
)
