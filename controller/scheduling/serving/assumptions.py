"""Bindings that were sent but that no watch has shown yet, laid over what the watches have shown.

A scheduler decides about the next pod before the server has answered about the previous one. Pods and groups appear as
they will be; a node keeps following its watch, so that no heartbeat is lost, with the new shares on top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from controller.apiserver.registry.placements import State
from controller.apiserver.resources import Node, Pod, PodGroup
from controller.apiserver.resources.base import Resource
from controller.apiserver.resources.node import Share

Key = tuple[type[Resource], str]


@dataclass(slots=True, eq=False)
class Assumption:
    """The effect of one request on pods and groups, and the shares that it adds to nodes.

    `revision` is that of its transaction once the server has answered: the watch is authoritative from there on.
    """

    shares: Mapping[str, tuple[Share, ...]]
    keys: tuple[Key, ...]
    revision: int | None = None
    is_withdrawn: bool = False

    @classmethod
    def of(cls, state: State, nodes: Mapping[str, Node]) -> Assumption:
        """Return the assumption for a request with this effect on its pods, nodes and groups."""
        shares = {
            name: tuple(share for share in node.shares if share not in nodes[name].shares)
            for name, node in state.nodes.items()
        }
        return cls(shares, tuple((type(resource), resource.metadata.name) for resource in _resources(state)))

    @staticmethod
    def resources(state: State) -> Iterator[Resource]:
        """Yield the resources as a request leaves them."""
        return _resources(state)

    def is_over(self, revision: int) -> bool:
        """Return whether the watch at a revision makes the assumption obsolete."""
        return self.is_withdrawn or (self.revision is not None and self.revision <= revision)


@dataclass(slots=True, eq=False)
class _Layer:
    """A resource as last shown by the watch, and its assumptions, oldest first."""

    seen: Resource
    assumptions: list[Assumption] = field(default_factory=list)


class Assumptions:
    """Assumptions by resource."""

    def __init__(self) -> None:
        self._layers: dict[Key, _Layer] = {}

    def __len__(self) -> int:
        return len(self._layers)

    def seen(self, kind: type[Resource], name: str) -> Resource | None:
        """Return a resource as last shown by the watch, None without an assumption."""
        layer = self._layers.get((kind, name))
        return None if layer is None else layer.seen

    def add(self, assumption: Assumption, assumed: Resource, before: Resource) -> Resource:
        """Assume that a resource becomes another; return it as it should appear."""
        layer = self._layers.setdefault((type(assumed), assumed.metadata.name), _Layer(before))
        layer.assumptions.append(assumption)
        return assumed

    def shown(self, resource: Resource, before: Resource | None) -> Resource:
        """Return a watched resource with its assumptions; `before` is the previous result."""
        layer = self._layers.get((type(resource), resource.metadata.name))
        if layer is None:
            return resource
        layer.seen = resource
        return self.visible(type(resource), resource.metadata.name, before or resource)

    def visible(self, kind: type[Resource], name: str, before: Resource) -> Resource:
        """Return a resource as it should appear, dropping obsolete assumptions."""
        layer = self._layers.get((kind, name))
        if layer is None:
            return before
        revision = layer.seen.metadata.revision
        layer.assumptions = [assumption for assumption in layer.assumptions if not assumption.is_over(revision)]
        if not layer.assumptions:
            del self._layers[kind, name]
            return layer.seen
        if isinstance(layer.seen, Node):
            return with_shares(layer.seen, layer.assumptions)
        return before

    def forget(self, kind: type[Resource], name: str) -> None:
        """Drop all assumptions of a deleted resource."""
        self._layers.pop((kind, name), None)


def with_shares(node: Node, assumptions: list[Assumption]) -> Node:
    """Return a node with the shares that it does not show yet; each request that adds some bumps their version."""
    held = {(share.uid, share.epoch) for share in node.shares}
    shares, versions = list(node.shares), 0
    for assumption in assumptions:
        more = [
            share for share in assumption.shares.get(node.metadata.name, ()) if (share.uid, share.epoch) not in held
        ]
        replaced = {share.uid for share in more}
        shares = [share for share in shares if share.uid not in replaced] + more
        versions += bool(more)
    return replace(node, shares=tuple(shares), shares_version=node.shares_version + versions) if versions else node


def _resources(state: State) -> Iterator[Pod | Node | PodGroup]:
    yield from (pod for pod in state.pods.values() if pod is not None)
    yield from state.nodes.values()
    yield from state.groups.values()
