"""Pod: containers that run on one host."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.base import (
    Count,
    LabelName,
    LabelValue,
    Line,
    Lines,
    Name,
    Priority,
    R,
    Resource,
    Seconds,
    Secrets,
    Text,
    TimeNs,
)
from controller.apiserver.resources.hardware import DeviceLimits, DeviceNeed, DeviceNumber, DeviceShares, Load, Request
from controller.apiserver.resources.kind import Kind, Own, Rights, Server, Strategy, Usage, Verb, check_secrets
from controller.apiserver.resources.operator_devices import OperatorDevices
from controller.apiserver.resources.startable import environment_problem, image_problem, words_problem
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.hardware import ACCELERATORS
from controller.common.errors import InvalidError, StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Role
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

    def problem(self) -> tuple[str, str] | None:
        """Return the part with which the container cannot start on any node, and why; not raised for stored pods."""
        problems = {
            "image": None if self.image is None else image_problem(self.image),
            "bundle": None if self.bundle is None else words_problem((self.bundle,)),
            "command": words_problem(self.command),
            "environment": environment_problem(self.environment),
            "secrets": environment_problem(dict.fromkeys(self.secrets, "")),
            "working_folder": None if self.working_folder is None else words_problem((self.working_folder,)),
        }
        return next(((part, why) for part, why in problems.items() if why is not None), None)


class Location(Strict, frozen=True):
    """Required location: every part given must match, or the pod is refused with the reason.

    A device, by kind or number, is granted with it; kind `cpu` keeps a pod with operators on processors.
    """

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
    idle_limit_s: Seconds | Literal["never"] | None = None
    """A pod that is idle for this long is removed; null: after its node's limit."""
    restart: Restart = Restart.ALWAYS
    restart_limit: Count | None = None
    """Number of restarts of each container on a node after which its failure is the pod's; null: no limit."""
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
        if self.restart_limit is not None and self.restart is not Restart.ON_FAILURE:
            raise ValueError(f"restart_limit: belongs to restart on-failure, not {self.restart}")

    @property
    def requested(self) -> Request:
        """Resources that the pod gets: its request, and the device that its location or its operators bring."""
        return _requested(self.request, self.location, bool(self.operators))

    @property
    def may_lack_device(self) -> bool:
        """True if its operators bring the device: where no node has any accelerator they run on processors."""
        return self.location is None and not self.request.devices and bool(self.operators)

    @property
    def brought(self) -> str:
        """The source of a device that `devices` does not request, as a sentence; empty if there is none."""
        if self.requested == self.request:
            return ""
        if self.may_lack_device:
            return "its operators bring an accelerator, as it states neither devices nor a location"
        assert self.location is not None
        if self.location.device_kind is None:
            return f"its location brings device {self.location.device}"
        return f"its location brings a device of kind {self.location.device_kind}"

    @property
    def names_secrets(self) -> bool:
        """True if any container takes values from secrets."""
        return any(container.secrets for container in self.containers)


@lru_cache(maxsize=4096)
def _requested(request: Request, location: Location | None, has_operators: bool) -> Request:
    """Return a request with the device that a location, or else operators, bring."""
    needs = list(request.devices)
    kind = None if location is None else location.device_kind
    if kind is DeviceKind.CPU:
        return request
    if kind is not None:
        place = next((at for at, need in enumerate(needs) if kind in need.kinds), None)
        if place is not None:
            # A fixed kind stays as it is; of several kinds the location chooses.
            needs[place] = replace(needs[place], kind=kind, any_of=())
        else:
            needs.append(DeviceNeed(kind=kind))
    elif not needs and (has_operators if location is None else location.device is not None):
        needs.append(DeviceNeed(any_of=ACCELERATORS))
    return replace(request, devices=tuple(needs))


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
    device_limits: DeviceLimits = ()
    """Enforcement of its shares of devices, as its node has started it."""
    reasons: Lines = ()
    """Reasons to wait, stop or end, by the last writer of the status; a binding clears them."""
    retries: Count = 0
    """Number of times it was placed again after failing on its node."""


POD_ENDED: Final = (Phase.SUCCEEDED, Phase.FAILED)
_ALIVE: Final = (Phase.PENDING, Phase.BOUND, Phase.STARTING, Phase.RUNNING)
_MAY_CHANGE: Final = frozenset({"priority", "idle_limit_s", "restart", "restart_limit", "stop_grace_s"})
"""Parts that are reread while the pod runs, as are labels. All others chose the node or made the containers."""
_ACTIONS: Final = ("node", "devices", "operator_devices", "decision", "bound_ns", "then", "nominated")
"""Parts of the status that only bindings, releases and evictions write."""


class Pod(Resource, frozen=True):
    """Containers that run on one host."""

    spec: PodSpec
    status: PodStatus = PodStatus()
    kind: Literal["Pod"] = "Pod"


class PodStrategy(Strategy[Pod]):
    """Pods: bindings decide their place; the spec that chose it is fixed while they hold a share of a node."""

    def validate(self, current: Pod | None, wanted: Pod) -> None:
        """Refuse a spec that contradicts what the pod holds, and secrets without a project."""
        fixed = () if current is None else fixed_changes(current.spec, wanted.spec)
        if current is not None and current.status.node is not None and fixed:
            what = " and ".join(fixed)
            raise StaleError(f"Pod {current.metadata.name} holds a share: its {what} cannot change before its release")
        check_secrets("Pod", wanted.metadata, named=wanted.spec.names_secrets)
        check_containers("Pod", wanted.metadata.name, None if current is None else current.spec, wanted.spec)

    def prepare_status(self, current: Pod, wanted: Pod, principal: Principal, server: Server) -> Pod:
        """Keep what bindings write, and stamp the end; refuse a report of another epoch."""
        before = current.status
        if wanted.status.epoch != before.epoch:
            name = current.metadata.name
            raise StaleError(f"Pod {name} is in epoch {before.epoch}, no longer in {wanted.status.epoch}")
        status = replace(wanted.status, **{part: getattr(before, part) for part in _ACTIONS})
        if before.then is not None:
            # The reporter of an evicted pod has not seen the eviction yet, or is carrying it out.
            phase = Phase.STOPPING if status.phase in _ALIVE else status.phase
            status = replace(status, phase=phase, reasons=status.reasons or before.reasons)
        made = replace(wanted, status=status)
        return with_end(made, has_ended=status.phase in POD_ENDED, now_ns=server.now_ns)

    def is_held(self, current: Pod) -> bool:
        """Keep a deleted pod until its node has released it."""
        return current.status.node is not None

    def usage(self, resource: Pod) -> Usage:
        """Count a pod that may still run, unless its group with a template counts it."""
        phase = resource.status.phase
        if resource.metadata.part_of is not None or phase in POD_ENDED:
            return Usage()
        spec = resource.spec
        is_bare = spec.may_lack_device and resource.status.node is not None and not resource.status.devices
        return usage_of_pods(spec.request if is_bare else spec.requested, 1, int(phase is Phase.PENDING))

    def priority(self, resource: Pod) -> int:
        """Return the priority of the spec."""
        return resource.spec.priority


def check_containers(kind: str, name: str, current: PodSpec | None, wanted: PodSpec) -> None:
    """Raise InvalidError for a new container or location with which a pod cannot start on any node."""
    known = () if current is None else current.containers
    for container in wanted.containers:
        if container not in known and (problem := container.problem()) is not None:
            part, why = problem
            raise InvalidError(f"{kind} {name}: container {container.name}: {part}: {why}")
    is_new = current is None or (current.location, current.request) != (wanted.location, wanted.request)
    if is_new and (why := location_problem(wanted)):
        raise InvalidError(f"{kind} {name}: location: {why}")


def location_problem(spec: PodSpec) -> str:
    """Return why no node can ever match a pod's location; empty if some can."""
    location = spec.location
    if location is None or location.device_kind is not DeviceKind.CPU:
        return ""
    if location.device is not None:
        return f"device {location.device} is no cpu: give its kind, or no device_kind"
    return "device_kind cpu brings no device, but the pod requests devices" if spec.request.devices else ""


def changed_parts(current: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of the parts that differ."""
    names = (field.name for field in msgspec.structs.fields(PodSpec))
    return tuple(name for name in names if getattr(current, name) != getattr(wanted, name))


def fixed_changes(current: PodSpec, wanted: PodSpec) -> tuple[str, ...]:
    """Return the names of differing parts that are fixed while the pod holds a share."""
    return tuple(name for name in changed_parts(current, wanted) if name not in _MAY_CHANGE)


def with_end(resource: R, *, has_ended: bool, now_ns: Callable[[], int]) -> R:
    """Return a pod or group with the server's time at its end, if it has ended."""
    if has_ended == (resource.status.finished_ns is not None):
        return resource
    return replace(resource, status=replace(resource.status, finished_ns=now_ns() if has_ended else None))


def usage_of_pods(request: Request, count: int, pending: int) -> Usage:
    """Return the usage of pods of one request, of which some wait for placement."""
    return Usage(
        pods=count,
        pending=pending,
        cpu_milli=count * request.cpu_milli,
        memory_bytes=count * request.memory_bytes,
        device_thousandths=count * sum(need.count * need.thousandths for need in request.devices),
    )


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
    initial=("status",),
    columns={
        "phase": lambda pod: "deleting" if pod.metadata.deleting_ns else pod.status.phase.value,
        "node": lambda pod: pod.status.node,
        "group": lambda pod: pod.spec.group,
        "reasons": lambda pod: "; ".join(pod.status.reasons[:2]),
    },
    rights=Rights(
        is_private=True,
        users_write=True,
        own={Role.NODE: Own("node", frozenset({Verb.READ, Verb.STATUS, Verb.RELEASE}))},
        roles={Role.PLACEMENT: frozenset({Verb.READ, Verb.CREATE, Verb.STATUS, Verb.DELETE, Verb.RELEASE})},
    ),
    strategy=PodStrategy(),
    is_subject=True,
)
