"""Bindings and releases: assign shares of nodes to pods, given the state in the storage; no storage access.

A request takes effect as a whole or not at all. A share counts from binding to release.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.tenancy.tenants import check_group
from controller.apiserver.resources import Decision, Node, Pod, PodGroup
from controller.apiserver.resources.base import Count, Line, Lines, Metadata, Name, TimeNs
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.hardware import DeviceShare, DeviceShares
from controller.apiserver.resources.node import Share
from controller.apiserver.resources.operator_devices import OperatorDevices, problem_of
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import MOST_PODS, GroupPhase
from controller.cluster.hardware import values
from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.requests import DeviceRequest
from controller.common.errors import InvalidError, NotFoundError, StaleError
from dataplane.config import Strict

NOT_MOVED: Final[Mapping[str, int]] = {}
_ENDED = (Phase.SUCCEEDED, Phase.FAILED)


class Binding(Strict, frozen=True):
    """Bind a pod to a node, on these devices; it gets what it requests.

    Revisions, if given, must still be current; only bindings change `shares_version`, reports do not.
    """

    pod: Name
    node: Name
    devices: DeviceShares = ()
    operator_devices: OperatorDevices = ()
    """Device per operator, for its status; each must be of a kind that the pod gets."""
    pod_revision: Count | None = None
    node_revision: Count | None = None
    shares_version: Count | None = None


class NewDecision(Strict, frozen=True):
    """A decision to store with its effects."""

    name: Name
    spec: DecisionSpec


class BindingRequest(Strict, frozen=True):
    """Bindings that take effect together, and the decision behind them; a group needs all of its pods."""

    bindings: Annotated[tuple[Binding, ...], Meta(min_length=1, max_length=MOST_PODS)]
    decision: NewDecision | None = None


class Release(Strict, frozen=True):
    """A pod releases its share and enters `phase`: pending is placed again, succeeded and failed are final.

    With an epoch, only if it was not rebound since; with `heartbeat_ns`, only if its node last reported then (0:
    never). A pod that is being deleted is removed. `node` releases the share there of a pod that no longer exists or is
    elsewhere.
    """

    pod: Name
    epoch: Count | None = None
    phase: Phase = Phase.PENDING
    node: Name | None = None
    heartbeat_ns: TimeNs | None = None
    reasons: Lines = ()


class ReleaseRequest(Strict, frozen=True):
    """Releases that take effect together."""

    releases: Annotated[tuple[Release, ...], Meta(min_length=1, max_length=MOST_PODS)]
    decision: NewDecision | None = None


class PlacementAnswer(Strict, frozen=True):
    """Resources that were written, all at one revision."""

    revision: Count
    pods: tuple[Name, ...]
    nodes: tuple[Name, ...]
    reason: Line = ""


@dataclass(slots=True)
class State:
    """State of a request's resources, before and after; None for those to delete."""

    pods: dict[str, Pod | None] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    groups: dict[str, PodGroup] = field(default_factory=dict)


def bind(state: State, request: BindingRequest, now_ns: int, moved: Mapping[str, int] = NOT_MOVED) -> State:
    """Return the state after a request; raise StaleError if it no longer fits.

    `moved` counts the same batch's changes of the version of a node's shares, which are no reason to refuse.
    """
    _check_names([binding.pod for binding in request.bindings])
    made = State()
    for binding in request.bindings:
        # An earlier binding of the same request may have changed the node already.
        pod, node = _pod(state, binding.pod), made.nodes.get(binding.node) or _node(state, binding.node)
        _check_expectations(binding, pod, state.nodes[binding.node], moved.get(binding.node, 0))
        _check_operators(binding, pod, state.nodes[binding.node])
        _check_free(pod)
        made.nodes[binding.node] = with_share(node, _share(pod, binding))
        status = replace(
            pod.status,
            phase=Phase.BOUND,
            node=binding.node,
            devices=binding.devices,
            operator_devices=binding.operator_devices,
            epoch=pod.status.epoch + 1,
            decision=None if request.decision is None else request.decision.name,
            bound_ns=now_ns,
            containers=(),
            device_limits=(),
            reasons=(),
            then=None,
            nominated=None,
        )
        made.pods[binding.pod] = replace(pod, status=status)
    _bind_groups(state, made, request)
    # Once per node, however many of its pods the request binds.
    made.nodes = {name: _next_version(node) for name, node in made.nodes.items()}
    return made


def release(state: State, request: ReleaseRequest, now_ns: int) -> State:
    """Return the state after a request; raise StaleError for a pod that was rebound."""
    _check_names([item.pod for item in request.releases])
    made = State(groups=dict(state.groups))
    for item in request.releases:
        pod = state.pods.get(item.pod)
        if pod is not None and item.node is not None:
            if item.node == pod.status.node:
                raise StaleError(f"Pod {item.pod} is on node {item.node}: it keeps its shares")
            pod = None
        name = item.node if pod is None else pod.status.node
        if name is None:
            raise StaleError(f"Pod {item.pod} holds nothing")
        if pod is not None and item.epoch is not None and item.epoch != pod.status.epoch:
            raise StaleError(f"Pod {item.pod} is in epoch {pod.status.epoch}, no longer in {item.epoch}")
        node = made.nodes.get(name) or state.nodes.get(name)
        _check_silent(item, name, node)
        if node is not None:
            made.nodes[name] = replace(node, shares=tuple(share for share in node.shares if share.pod != item.pod))
        if pod is not None:
            made.pods[item.pod] = None if pod.metadata.deleting_ns is not None else _released(pod, item, now_ns)
            _leave_group(made, pod)
    made.nodes = {name: _next_version(node) for name, node in made.nodes.items()}
    return made


def with_share(node: Node, share: Share) -> Node:
    """Return a node with a pod's share added; raise StaleError if it does not fit."""
    name, value = node.metadata.name, node.value
    if value is None:
        raise StaleError(f"Node {name} has not reported its devices")
    if node.spec.unschedulable:
        raise StaleError(f"Node {name} does not accept pods: {node.spec.reason or 'unschedulable'}")
    made = replace(node, shares=(*(held for held in node.shares if held.uid != share.uid), share))
    try:
        value.check(made.held)
    except HardwareError as error:
        raise StaleError(f"Node {name}: {share.pod} does not fit: {error}") from None
    return made


def decision_of(wanted: NewDecision, metadata: Metadata) -> Decision:
    """Return a decision in its stored form."""
    return Decision(metadata=metadata, spec=wanted.spec)


def check_devices(pod: Pod, granted: DeviceShares, node: values.Node) -> None:
    """Raise StaleError for devices that do not match a pod's request, or its location's."""
    left, name, location = list(granted), pod.metadata.name, pod.spec.location
    if not granted and pod.spec.may_lack_device:
        return
    # The most selective parts choose first, as other parts of the request may take any device.
    needs = pod.spec.requested.value.devices
    for need in sorted(needs, key=lambda need: (len(need.kinds), not need.models, -need.memory_bytes, -need.count)):
        matches = _matches(left, need, node)
        if len(matches) < need.count:
            raise StaleError(f"Pod {name} requests {need.count} {need}, which its binding lacks")
        for match in matches[: need.count]:
            left.remove(match)
    if location is not None and location.device is not None and all(part.number != location.device for part in granted):
        raise StaleError(f"Pod {name} must get device {location.device}, which its binding lacks")
    if left:
        raise StaleError(f"Pod {name} does not request device {left[0].number}")


def _matches(parts: Sequence[DeviceShare], need: DeviceRequest, node: values.Node) -> list[DeviceShare]:
    """Return the shares that serve a request, all of one kind: the first kind with enough."""
    by_kind = ([part for part in parts if _serves(part, need.of_kind(kind), node)] for kind in need.kinds)
    return next((matches for matches in by_kind if len(matches) >= need.count), [])


def _serves(part: DeviceShare, need: DeviceRequest, node: values.Node) -> bool:
    if part.number >= len(node.devices):
        raise StaleError(f"Node {node.name} has no device {part.number}")
    device = node.devices[part.number]
    return need.accepts(device) and part.thousandths == need.thousandths and part.memory_bytes >= need.memory_bytes


def _share(pod: Pod, binding: Binding) -> Share:
    request = pod.spec.request
    return Share(
        pod=binding.pod,
        uid=pod.metadata.uid,
        epoch=pod.status.epoch + 1,
        cpu_milli=request.cpu_milli,
        memory_bytes=request.memory_bytes,
        devices=binding.devices,
    )


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise InvalidError(f"Pod {twice} is given twice")


def _check_expectations(binding: Binding, pod: Pod, node: Node, moved: int) -> None:
    """Compare the caller's expectations with the state before this request, not with its effects."""
    for kind, resource, expected in (("Pod", pod, binding.pod_revision), ("Node", node, binding.node_revision)):
        revision = resource.metadata.revision
        if expected is not None and expected != revision:
            name = resource.metadata.name
            raise StaleError(f"{kind} {name} is at revision {revision}, no longer at {expected}")
    version = node.shares_version - moved
    if binding.shares_version is not None and binding.shares_version != version:
        raise StaleError(f"shares of Node {binding.node} are at version {version}, not {binding.shares_version}")
    value = node.value
    if value is not None:
        check_devices(pod, binding.devices, value)


def _check_operators(binding: Binding, pod: Pod, node: Node) -> None:
    """Raise InvalidError for operators that the pod lacks, or devices that it does not get."""
    hardware, granted = node.hardware, {share.number for share in binding.devices}
    kinds = () if hardware is None else (device.kind for device in hardware.devices if device.number in granted)
    if problem := problem_of(binding.operator_devices, (operator.name for operator in pod.spec.operators), kinds):
        raise InvalidError(f"Pod {binding.pod}: {problem}")


def _check_free(pod: Pod) -> None:
    name, status = pod.metadata.name, pod.status
    if pod.metadata.deleting_ns is not None:
        raise StaleError(f"Pod {name} is being deleted")
    if status.node is not None:
        raise StaleError(f"Pod {name} is already on node {status.node}")
    if status.phase in _ENDED:
        raise StaleError(f"Pod {name} has {status.phase.value}")


def _bind_groups(state: State, made: State, request: BindingRequest) -> None:
    """Update each group's count of bound pods; raise StaleError if a group is not bound whole."""
    counts = Counter(pod.spec.group for pod in made.pods.values() if pod is not None and pod.spec.group is not None)
    for name, count in counts.items():
        group = state.groups.get(name)
        if group is None:
            raise NotFoundError(f"there is no PodGroup {name}")
        for pod in made.pods.values():
            if pod is not None and pod.spec.group == name:
                check_group(pod, group)
        if not group.needed:
            raise StaleError(f"PodGroup {name} has {group.status.phase.value}")
        bound = group.status.bound + count
        if count < group.needed:
            raise StaleError(f"PodGroup {name} is placed as a whole: the request has {bound} of {group.spec.size} pods")
        decision = None if request.decision is None else request.decision.name
        status = replace(group.status, bound=bound, phase=GroupPhase.BOUND, decision=decision)
        made.groups[name] = replace(group, status=status)


def _leave_group(made: State, pod: Pod) -> None:
    group = None if pod.spec.group is None else made.groups.get(pod.spec.group)
    if group is not None:
        status = replace(group.status, bound=max(group.status.bound - 1, 0))
        made.groups[group.metadata.name] = replace(group, status=status)


def _released(pod: Pod, item: Release, now_ns: int) -> Pod:
    finished = now_ns if item.phase in _ENDED else None
    status = replace(
        pod.status,
        phase=item.phase,
        node=None,
        devices=(),
        operator_devices=(),
        finished_ns=finished,
        reasons=item.reasons,
        then=None,
    )
    return replace(pod, status=status)


def _check_silent(item: Release, name: str, node: Node | None) -> None:
    """Raise StaleError if a node assumed silent has reported."""
    if item.heartbeat_ns is not None and node is not None and (node.status.heartbeat_ns or 0) != item.heartbeat_ns:
        raise StaleError(f"Node {name} has reported since: Pod {item.pod} is kept")


def _next_version(node: Node) -> Node:
    return replace(node, shares_version=node.shares_version + 1)


def _pod(state: State, name: str) -> Pod:
    pod = state.pods.get(name)
    if pod is None:
        raise NotFoundError(f"there is no Pod {name}")
    return pod


def _node(state: State, name: str) -> Node:
    node = state.nodes.get(name)
    if node is None:
        raise NotFoundError(f"there is no Node {name}")
    return node
