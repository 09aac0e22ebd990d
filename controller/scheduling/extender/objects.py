"""The parts of Kubernetes' nodes and pods that placements depend on: core/v1 in JSON; unknown fields are ignored.

The full types are in the API server's OpenAPI; tests compare these with the official Python client's models.
"""

from __future__ import annotations

from typing import Final

import msgspec

Quantities = dict[str, str | int | float]
"""Amounts by resource name, as written."""


class KubernetesObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of objects of the API server: names in camel case, and many more fields than are read here."""


class ObjectMeta(KubernetesObject, frozen=True):
    """Identity of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class Taint(KubernetesObject, frozen=True):
    """A property of a node that repels pods unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(KubernetesObject, frozen=True):
    """Taints that a pod tolerates: an empty key with Exists matches all, an empty effect matches every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a taint is tolerated."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeSpec(KubernetesObject, frozen=True):
    """Desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(KubernetesObject, frozen=True):
    """Capacity of a node for pods."""

    allocatable: Quantities | None = None


class Node(KubernetesObject, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ResourceRequirements(KubernetesObject, frozen=True):
    """Requests and limits."""

    requests: Quantities | None = None
    limits: Quantities | None = None

    @property
    def wanted(self) -> Quantities:
        """Requested amounts; a limit without a request counts as the request, as in the API server."""
        return {**(self.limits or {}), **(self.requests or {})}


class Container(KubernetesObject, frozen=True):
    """A container; an init container with `restart_policy` Always runs alongside the others, as a sidecar."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class PodSpec(KubernetesObject, frozen=True):
    """Contents and placement of a pod."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    tolerations: tuple[Toleration, ...] | None = None
    node_name: str = ""
    priority: int | None = None


class PodStatus(KubernetesObject, frozen=True):
    """Status of a pod."""

    phase: str = ""


class Pod(KubernetesObject, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def full_name(self) -> str:
        """Its name, prefixed with the namespace."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def holds(self) -> bool:
        """True if it is on a node and has not ended."""
        return bool(self.spec.node_name) and self.status.phase not in ENDED


ENDED: Final = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing."""


class ListMeta(KubernetesObject, frozen=True):
    """The version of a list, and the token for the next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ObjectList(KubernetesObject, frozen=True):
    """A page of a list, with the items undecoded."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class WatchEvent(KubernetesObject, frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Status(KubernetesObject, frozen=True):
    """The API server's answer to a failed request."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Binding(msgspec.Struct, frozen=True, rename="camel"):
    """The body of a POST to a pod's binding."""

    metadata: ObjectMeta
    target: dict[str, str]
    api_version: str = "v1"
    kind: str = "Binding"


def binding_of(namespace: str, pod: str, uid: str, node: str) -> Binding:
    """Return the body that binds a pod to a node; with its uid, a later pod of the same name is refused."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return Binding(metadata=ObjectMeta(name=pod, namespace=namespace, uid=uid), target=target)
