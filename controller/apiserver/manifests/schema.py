"""Schema of a manifest: one document, a pod or a group."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from controller.apiserver.manifests.quantities import Cores, Delay, Duration, IdleLimit, Quantity, Rate, Share, Size
from controller.apiserver.resources.base import LabelName, LabelValue, Line, Name, Priority, Text
from controller.apiserver.resources.hardware import DeviceNumber
from controller.apiserver.resources.pod import Restart
from controller.apiserver.resources.pod_group import MOST_PODS, AllReduce, OnFailure
from controller.apiserver.resources.task import OperatorCount
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=64)]
Command = Annotated[tuple[Text, ...], Meta(max_length=256)]
Environment = Annotated[dict[Line, Text], Meta(max_length=256)]


class ContainerScript(Strict, frozen=True):
    """A container: an image by name or digest, or an OCI bundle in a folder on the node."""

    name: Name
    image: Line | None = None
    bundle: Line | None = None
    command: Command = ()
    environment: Environment = msgspec.field(default_factory=dict)
    working_folder: Line | None = None


class RequestedKind(StrEnum):
    """A kind of device, or any kind of accelerator."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    NPU = "npu"
    DPU = "dpu"
    FPGA = "fpga"
    XPU = "xpu"
    ANY = "any"


class DeviceScript(Strict, frozen=True):
    """Whole devices by count, or a share of one; memory is per device."""

    kind: RequestedKind | None = None
    any_of: Annotated[tuple[DeviceKind, ...], Meta(max_length=len(DeviceKind))] = ()
    """Acceptable kinds, instead of `kind`; all devices are of the same one."""
    count: Annotated[int, Meta(ge=1, le=256)] | None = None
    share: Share | None = None
    model: Line | None = None
    models: Annotated[tuple[Line, ...], Meta(max_length=64)] = ()
    """Acceptable models, if there are several."""
    memory: Size | None = None


class LocationScript(Strict, frozen=True):
    """Required location; every part given must match, or the pod is refused with the reason.

    A device, by kind or number, is granted with it. Kind `cpu` keeps a pod with operators on processors.
    """

    node: Name | None = None
    device: DeviceNumber | None = None
    device_kind: DeviceKind | None = None


class PeerScript(Strict, frozen=True):
    """Requirements on the path to another pod or host, in both directions."""

    pod: Name | None = None
    host: Name | None = None
    min_bandwidth: Rate | None = None
    max_delay: Delay | None = None


class TemplateScript(Strict, frozen=True):
    """Common keys of pods: one container by its keys, or several below `containers`."""

    labels: Labels = msgspec.field(default_factory=dict)
    image: Line | None = None
    bundle: Line | None = None
    command: Command = ()
    environment: Environment = msgspec.field(default_factory=dict)
    working_folder: Line | None = None
    containers: Annotated[tuple[ContainerScript, ...], Meta(max_length=16)] = ()
    cpu: Cores | None = None
    memory: Size | None = None
    devices: Annotated[tuple[DeviceScript, ...], Meta(max_length=32)] = ()
    location: LocationScript | None = None
    node_labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=32)] = msgspec.field(default_factory=dict)
    """Labels that the node must have."""
    peers: Annotated[tuple[PeerScript, ...], Meta(max_length=256)] = ()
    priority: Priority = 0
    idle_limit: IdleLimit | None = None
    restart: Restart = Restart.ALWAYS
    restart_limit: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Maximum number of restarts of each container on a node, with `restart: on-failure`."""
    stop_grace: Duration | None = None
    profile: Name = "default"
    """Profile of the scheduler that places it."""
    operators: Annotated[tuple[OperatorCount, ...], Meta(max_length=1024)] = ()
    """Operators that the containers compute together, as far as known."""


class PodScript(TemplateScript, frozen=True, kw_only=True):
    """A pod: containers that run on one host."""

    name: Name
    group: Name | None = None
    """The group that it is placed with."""


class GroupScript(Strict, frozen=True):
    """Pods that are placed together or not at all; without a template, separately written pods name the group."""

    name: Name
    size: Annotated[int, Meta(ge=1, le=MOST_PODS)]
    labels: Labels = msgspec.field(default_factory=dict)
    priority: Priority = 0
    wait: Duration | None = None
    """A group that is not placed within this time fails."""
    template: TemplateScript | None = None
    allreduce: AllReduce | None = None
    """The pods are workers of a job with in-network aggregation."""
    on_failure: OnFailure = OnFailure.POD
    """Start again the failed pod alone, or all pods of the group."""


class Script(Strict, frozen=True):
    """A document: either a pod or a group."""

    pod: PodScript | None = None
    group: GroupScript | None = None


def json_schema() -> dict[str, Any]:
    """Return the schema of a document as JSON Schema (2020-12), for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Millrace: pod script",
        **msgspec.json.schema(Script, schema_hook=_schema_of),
    }


def _schema_of(kind: type) -> dict[str, Any]:
    if issubclass(kind, Quantity):
        return dict(kind.schema)
    raise NotImplementedError(kind)
