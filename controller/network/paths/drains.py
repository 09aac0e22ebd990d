"""Drained links, cables and switches: their traffic goes elsewhere, and nothing new is placed on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from controller.common.errors import NoSuchPathError, PathError
from controller.network.paths.records.values import Drain
from dataplane.topology.values import LinkKey, Topology

_CABLE: Final = "<->"
_LINK: Final = "->"


class Drains:
    """Drained elements by name, and the links that this takes out of use.

    An element is `A->B`, one direction of a cable, `A<->B`, both, or the name of a switch: all links to and from it.
    """

    def __init__(self, topology: Topology, elements: Mapping[str, Drain] | None = None) -> None:
        self._topology = topology
        self.elements: dict[str, Drain] = dict(elements or {})
        self._inner = frozenset(
            key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch
        )

    def name(self, element: str) -> str:
        """Return an element's name in its one form; raise NoSuchPathError for an unknown one."""
        ends = element.split(_CABLE)
        name = _CABLE.join(sorted(ends)) if len(ends) == 2 else element
        if not self._links_of(name) and name not in self._topology.switch:
            raise NoSuchPathError(
                f"topology {self._topology.name} has no link between switches and no switch {element!r}"
            )
        return name

    def restore(self, saved: Iterable[Drain]) -> int:
        """Restore saved drains of elements that still exist; return the number of dropped ones."""
        every = list(saved)
        kept = [drain for drain in every if self._links_of(drain.element) or drain.element in self._topology.switch]
        self.elements.update((drain.element, drain) for drain in kept)
        return len(every) - len(kept)

    def changed(self, drain: Drain, *, is_drained: bool) -> Drains:
        """Return the drains with one more, or without one; the same ones if it is drained already.

        Raise PathError for an element that is not drained itself.
        """
        if is_drained:
            return self if drain.element in self.elements else self._with({**self.elements, drain.element: drain})
        if drain.element not in self.elements:
            other = next((name for name in self.elements if self._links_of(drain.element) & self._links_of(name)), None)
            raise PathError(f"{drain.element} is not drained" + (f" itself: {other} is" if other else ""))
        return self._with({name: kept for name, kept in self.elements.items() if name != drain.element})

    def _with(self, elements: Mapping[str, Drain]) -> Drains:
        return Drains(self._topology, elements)

    @property
    def links(self) -> frozenset[LinkKey]:
        """The directed links that are out of use."""
        return frozenset[LinkKey]().union(*map(self._links_of, self.elements))

    @property
    def revision(self) -> str:
        """Identifies the set of drains: it changes with each change."""
        return hashlib.sha256(msgspec.msgpack.encode(sorted(self.elements.items()))).hexdigest()[:16]

    def cause(self, link: LinkKey) -> Drain | None:
        """Return the drain that takes a link out of use, None if it is in use."""
        return next((drain for name, drain in self.elements.items() if link in self._links_of(name)), None)

    def links_of(self, element: str) -> frozenset[LinkKey]:
        """Return the links of an element."""
        return self._links_of(element)

    def hosts_of(self, element: str) -> tuple[str, ...]:
        """Return the hosts that have no other switch."""
        return tuple(host for host, edge in self._topology.attachment.items() if edge.node == element)

    def _links_of(self, element: str) -> frozenset[LinkKey]:
        if element in self._topology.switch:
            return frozenset(key for key in self._inner if element in (key.src, key.dst))
        a, is_cable, b = element.partition(_CABLE)
        if is_cable:
            return frozenset({LinkKey(a, b), LinkKey(b, a)}) & self._inner
        src, _, dst = element.partition(_LINK)
        return frozenset({LinkKey(src, dst)}) & self._inner
