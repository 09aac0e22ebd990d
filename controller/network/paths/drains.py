"""Drained links, cables and switches: their traffic goes elsewhere, and nothing new is placed on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final

import msgspec

from controller.common.errors import NoSuchPathError, PathError
from controller.network.paths.records.values import Drain
from dataplane.topology.values import LinkKey, Topology

_CABLE: Final = "<->"
_LINK: Final = "->"


class Drains:
    """Drained elements by name, and the links that this takes out of use; it does not change.

    An element is `A->B`, one direction of a cable, `A<->B`, both, or the name of a switch: all links to and from it.
    """

    def __init__(self, topology: Topology, elements: Mapping[str, Drain] = MappingProxyType({})) -> None:
        self._topology, self.elements = topology, dict(elements)

    @classmethod
    def restored(cls, topology: Topology, saved: Iterable[Drain]) -> Drains:
        """Return saved drains, without those of elements that no longer exist."""
        every = cls(topology, {drain.element: drain for drain in saved})
        return every._with({name: drain for name, drain in every.elements.items() if every._is_known(name)})

    def name(self, element: str) -> str:
        """Return an element's name in its one form; raise NoSuchPathError for an unknown one."""
        ends = element.split(_CABLE)
        name = _CABLE.join(sorted(ends)) if len(ends) == 2 else element
        if not self._is_known(name):
            raise NoSuchPathError(
                f"topology {self._topology.name} has no link between switches and no switch {element!r}"
            )
        return name

    def changed(self, drain: Drain, *, is_drained: bool) -> Drains:
        """Return the drains with one more, or without one; the same ones if it is drained already.

        Raise PathError for an element that is not drained itself.
        """
        name = drain.element
        if is_drained:
            return self if name in self.elements else self._with({**self.elements, name: drain})
        if name not in self.elements:
            other = next((other.element for link, other in self.by_link.items() if link in self.links_of(name)), None)
            raise PathError(f"{name} is not drained" + (f" itself: {other} is" if other else ""))
        return self._with({other: kept for other, kept in self.elements.items() if other != name})

    @cached_property
    def by_link(self) -> dict[LinkKey, Drain]:
        """The links that are out of use, each with a drain that causes it."""
        return {link: drain for name, drain in self.elements.items() for link in self.links_of(name)}

    @cached_property
    def links(self) -> frozenset[LinkKey]:
        """The directed links that are out of use."""
        return frozenset(self.by_link)

    @cached_property
    def revision(self) -> str:
        """Identifies the set of drains: it changes with each change."""
        return hashlib.sha256(msgspec.msgpack.encode(sorted(self.elements.items()))).hexdigest()[:16]

    def links_of(self, element: str) -> frozenset[LinkKey]:
        """Return the links between switches that an element stands for; none for an unknown one."""
        switches = self._topology.switch
        if element in switches:
            return frozenset(
                key
                for key in self._topology.directed_links
                if element in (key.src, key.dst) and switches.keys() >= {key.src, key.dst}
            )
        a, is_cable, b = element.partition(_CABLE)
        src, _, dst = element.partition(_LINK)
        keys = (LinkKey(a, b), LinkKey(b, a)) if is_cable else (LinkKey(src, dst),)
        return frozenset(
            key for key in keys if key in self._topology.directed_links and switches.keys() >= {key.src, key.dst}
        )

    def hosts_of(self, element: str) -> tuple[str, ...]:
        """Return the hosts that have no other switch."""
        return tuple(host for host, edge in self._topology.attachment.items() if edge.node == element)

    def _is_known(self, element: str) -> bool:
        return element in self._topology.switch or bool(self.links_of(element))

    def _with(self, elements: Mapping[str, Drain]) -> Drains:
        return Drains(self._topology, elements)
