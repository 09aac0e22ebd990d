"""The bodies of Kubernetes' scheduler extender, version v1 (k8s.io/kube-scheduler/extender/v1).

Its Go types have no JSON names: fields are written as in Go (`NodeNames`) and read in any case, because kube-schedulers
before 1.18 wrote them in lower case. Whole nodes are returned unchanged.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from controller.common.errors import SchedulerError
from controller.scheduling.extender.objects import Node, Pod
from dataplane.malformed import MALFORMED

T = TypeVar("T")


class MalformedError(SchedulerError):
    """A body is malformed."""


LEAST_PRIORITY: Final = 0
MOST_PRIORITY: Final = 10


class GivenNode(msgspec.Struct, frozen=True):
    """A node of a request, with its original bytes."""

    node: Node
    raw: msgspec.Raw


class ExtenderArgs(msgspec.Struct, frozen=True):
    """Arguments of filter and prioritize: a pod, and candidate nodes: whole ones, or their names."""

    pod: Pod
    nodes: tuple[GivenNode, ...] | None
    node_names: tuple[str, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        if self.nodes is not None:
            return tuple(entry.node.metadata.name for entry in self.nodes)
        return self.node_names or ()


class Victims(msgspec.Struct, frozen=True):
    """Pods of a node that would be evicted, by uid; `pods` holds whole pods if the request did."""

    uids: tuple[str, ...]
    pods: tuple[Pod, ...]
    budget_violations: int


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True):
    """Arguments of preempt: a pod, and the victims of each node for it."""

    pod: Pod
    victims: dict[str, Victims]


class ExtenderBindingArgs(msgspec.Struct, frozen=True):
    """Arguments of bind: a pod and its node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


class NodeListResult(msgspec.Struct, frozen=True):
    """Whole nodes of an answer."""

    items: tuple[msgspec.Raw, ...]
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class ExtenderFilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Answer of filter: the nodes that pass, in the form of the request, and why the others do not."""

    nodes: NodeListResult | None = None
    node_names: tuple[str, ...] | None = None
    failed_nodes: dict[str, str] = msgspec.field(default_factory=dict)
    failed_and_unresolvable_nodes: dict[str, str] = msgspec.field(default_factory=dict)
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    """An element of the answer of prioritize: a node's score, 0 to 10."""

    host: str
    score: int


class MetaPod(msgspec.Struct, frozen=True):
    """A pod by its uid."""

    uid: str = msgspec.field(name="UID")


class MetaVictims(msgspec.Struct, frozen=True):
    """Victims of a node."""

    pods: tuple[MetaPod, ...] = msgspec.field(name="Pods")
    budget_violations: int = msgspec.field(name="NumPDBViolations")


class ExtenderPreemptionResult(msgspec.Struct, frozen=True):
    """The answer of preempt: the nodes where preemption would help."""

    victims: dict[str, MetaVictims] = msgspec.field(name="NodeNameToMetaVictims")


class ExtenderBindingResult(msgspec.Struct, frozen=True, rename="pascal"):
    """The answer of bind: empty, or the error."""

    error: str = ""


def read_arguments(body: bytes) -> ExtenderArgs:
    """Return the arguments of filter and prioritize; raise MalformedError with a one-line message."""
    parts = _fields(body)
    nodes, names = parts.get("nodes"), parts.get("nodenames")
    arguments = ExtenderArgs(
        pod=_pod(parts),
        nodes=None if _is_null(nodes) else _nodes(nodes),
        node_names=None if _is_null(names) else _read(names, tuple[str, ...], "NodeNames"),
    )
    if arguments.nodes is None and arguments.node_names is None:
        raise MalformedError("the request has neither Nodes nor NodeNames")
    return arguments


def read_preemption(body: bytes) -> ExtenderPreemptionArgs:
    """Return the arguments of preempt; raise MalformedError with a one-line message."""
    parts = _fields(body)
    whole, meta = parts.get("nodenametovictims"), parts.get("nodenametometavictims")
    victims = {}
    if not _is_null(meta):
        victims = {name: _meta_victims(raw) for name, raw in _by_name(meta, "NodeNameToMetaVictims").items()}
    elif not _is_null(whole):
        victims = {name: _whole_victims(raw) for name, raw in _by_name(whole, "NodeNameToVictims").items()}
    return ExtenderPreemptionArgs(_pod(parts), victims)


def read_binding(body: bytes) -> ExtenderBindingArgs:
    """Return the arguments of bind; raise MalformedError with a one-line message."""
    parts = _fields(body)
    values = {}
    for key in ("PodName", "PodNamespace", "PodUID", "Node"):
        values[key] = "" if _is_null(raw := parts.get(key.lower())) else _read(raw, str, key)
    for key in ("PodName", "PodNamespace", "Node"):
        if not values[key]:
            raise MalformedError(f"the request has no {key}")
    return ExtenderBindingArgs(values["PodName"], values["PodNamespace"], values["PodUID"], values["Node"])


def _pod(parts: dict[str, msgspec.Raw]) -> Pod:
    raw = parts.get("pod")
    if _is_null(raw):
        raise MalformedError("the request has no Pod")
    pod = _read(raw, Pod, "Pod")
    if not pod.metadata.name:
        raise MalformedError("the request's Pod has no name")
    return pod


def _nodes(raw: msgspec.Raw | None) -> tuple[GivenNode, ...]:
    items = _fields(raw, "Nodes").get("items")
    if _is_null(items):
        return ()
    raw_items = _read(items, tuple[msgspec.Raw, ...], "Nodes.items")
    nodes = tuple(GivenNode(_read(item, Node, f"Nodes.items[{index}]"), item) for index, item in enumerate(raw_items))
    for index, entry in enumerate(nodes):
        if not entry.node.metadata.name:
            raise MalformedError(f"Nodes.items[{index}] has no name")
    return nodes


def _meta_victims(raw: msgspec.Raw) -> Victims:
    parts = _fields(raw, "NodeNameToMetaVictims")
    pods = () if _is_null(raw_pods := parts.get("pods")) else _read(raw_pods, tuple[dict[str, Any], ...], "Pods")
    uids = tuple(str(value) for pod in pods for key, value in pod.items() if key.lower() == "uid")
    return Victims(uids, (), _violations(parts))


def _whole_victims(raw: msgspec.Raw) -> Victims:
    parts = _fields(raw, "NodeNameToVictims")
    pods = () if _is_null(raw_pods := parts.get("pods")) else _read(raw_pods, tuple[Pod, ...], "Pods")
    return Victims(tuple(pod.metadata.uid for pod in pods), pods, _violations(parts))


def _violations(parts: dict[str, msgspec.Raw]) -> int:
    raw = parts.get("numpdbviolations")
    return 0 if _is_null(raw) else _read(raw, int, "NumPDBViolations")


def _by_name(raw: msgspec.Raw | None, where: str) -> dict[str, msgspec.Raw]:
    return _read(raw, dict[str, msgspec.Raw], where)


def _fields(body: bytes | msgspec.Raw | None, where: str = "the body") -> dict[str, msgspec.Raw]:
    """Return an object's fields by their names in lower case."""
    return {name.lower(): raw for name, raw in _read(body, dict[str, msgspec.Raw], where).items()}


def _is_null(raw: msgspec.Raw | None) -> bool:
    return raw is None or bytes(raw).strip() == b"null"


def _read(raw: bytes | msgspec.Raw | None, kind: type[T], where: str) -> T:
    try:
        return msgspec.json.decode(b"" if raw is None else raw, type=kind)
    except MALFORMED as error:
        problem = " ".join(str(error).split()) or type(error).__name__
        raise MalformedError(f"{where}: {problem}") from None
