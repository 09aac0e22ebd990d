"""Nodes and the shares held of each, as one immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.fitting import Refusal, choose, fits
from controller.cluster.hardware.requests import Request
from controller.cluster.hardware.values import NOTHING, Node, Shares


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes by name, and the shares held of them; methods return new values.

    Raises HardwareError for an unknown node, and for more than a node has.
    """

    nodes: Mapping[str, Node]
    held: Mapping[str, Shares] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, shares in self.held.items():
            self.node(name).check(shares)

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Cluster:
        """Return a cluster with nothing held; raise HardwareError for a duplicate name."""
        by_name: dict[str, Node] = {}
        for node in nodes:
            if node.name in by_name:
                raise HardwareError(f"{node.name}: duplicate node")
            by_name[node.name] = node
        return cls(by_name)

    def node(self, name: str) -> Node:
        """Return a node."""
        if (node := self.nodes.get(name)) is None:
            raise HardwareError(f"{name}: no such node")
        return node

    def held_of(self, name: str) -> Shares:
        """Return the shares held of a node."""
        return self.held.get(self.node(name).name, NOTHING)

    def fits(self, name: str, request: Request) -> Refusal | None:
        """Return why a request does not fit on a node's free resources, None if it fits."""
        return fits(self.node(name), self.held_of(name), request)

    def choose(self, name: str, request: Request) -> Shares:
        """Return the shares that a request would get of a node, without taking them."""
        return choose(self.node(name), self.held_of(name), request)

    def take(self, name: str, shares: Shares) -> Cluster:
        """Return the cluster with these shares taken as well."""
        node = self.node(name)
        try:
            held = self.held_of(name) + shares
        except HardwareError as error:
            raise HardwareError(f"{name}: {error}") from None
        node.check(held)
        return self._with(name, held)

    def release(self, name: str, shares: Shares) -> Cluster:
        """Return the cluster with these shares released; raise HardwareError if they were not held."""
        held = self.held_of(name)
        if not held.contains(shares):
            raise HardwareError(f"{name}: {shares} are not held, only {held}")
        return self._with(name, held - shares)

    def _with(self, name: str, held: Shares) -> Cluster:
        # The rest was checked when it was taken: only one node has changed.
        changed = object.__new__(Cluster)
        object.__setattr__(changed, "nodes", self.nodes)
        object.__setattr__(changed, "held", {**self.held, name: held})
        return changed
