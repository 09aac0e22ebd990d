"""Kubernetes' nodes and pods, as far as a placement depends on them: core/v1 in JSON, unknown fields are left alone.

The full types are the API server's OpenAPI; tests compare these with the official Python client's models.
"""

from __future__ import annotations

from typing import Final

import msgspec

Quantities = dict[str, str | int | float]
"""Amounts by the name of the resource, as they were written."""


class KubernetesObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of what the API server writes: names in camel case, and many more fields than are read here."""


class ObjectMeta(KubernetesObject, frozen=True):
    """Who it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class Taint(KubernetesObject, frozen=True):
    """What keeps pods off a node unless they tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


class Toleration(KubernetesObject, frozen=True):
    """Taints that a pod puts up with: an empty key with Exists is all of them, an empty effect each one."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a taint is one of these."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class NodeSpec(KubernetesObject, frozen=True):
    """What somebody wants of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeStatus(KubernetesObject, frozen=True):
    """What a node has for pods."""

    allocatable: Quantities | None = None


class Node(KubernetesObject, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ResourceRequirements(KubernetesObject, frozen=True):
    """What is asked for, and what is the most."""

    requests: Quantities | None = None
    limits: Quantities | None = None

    @property
    def wanted(self) -> Quantities:
        """What is asked for; of what only a limit is there, that, as the API server has it."""
        return {**(self.limits or {}), **(self.requests or {})}


class Container(KubernetesObject, frozen=True):
    """A container; one of init containers with `restart_policy` Always runs beside the others, as a sidecar."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    restart_policy: str | None = None


class PodSpec(KubernetesObject, frozen=True):
    """What a pod runs, and where."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: Quantities | None = None
    resources: ResourceRequirements | None = None
    tolerations: tuple[Toleration, ...] | None = None
    node_name: str = ""
    priority: int | None = None


class PodStatus(KubernetesObject, frozen=True):
    """How a pod fares."""

    phase: str = ""


class Pod(KubernetesObject, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def full_name(self) -> str:
        """Its name with its namespace before it."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def holds(self) -> bool:
        """Whether it is on a node, and has not ended."""
        return bool(self.spec.node_name) and self.status.phase not in ENDED


ENDED: Final = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing."""


class ListMeta(KubernetesObject, frozen=True):
    """Up to which version a list goes; where it is a page, how the next one is asked for."""

    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class ObjectList(KubernetesObject, frozen=True):
    """A page of a list, its items as they came."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


class WatchEvent(KubernetesObject, frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str
    object: msgspec.Raw


class Status(KubernetesObject, frozen=True):
    """What the API server says of a request that failed."""

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
    """Return the body that binds a pod to a node; with its uid a later pod of the same name is refused."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    return Binding(metadata=ObjectMeta(name=pod, namespace=namespace, uid=uid), target=target)
