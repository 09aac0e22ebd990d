"""Selects leaves by path: patterns of names and keys against the table of leaves (gNMI, section 2.2.2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dataplane.switch.gnmi.errors import invalid, unimplemented
from dataplane.switch.gnmi.leaves import LEAVES
from dataplane.switch.gnmi.paths import ANY, ANY_DEPTH, Path, Step, shown
from dataplane.switch.gnmi.schema import Leaf, Node, PortView, key_of

_END: Final = Step("")


@dataclass(frozen=True, slots=True)
class Selection:
    """A leaf that a pattern selects, for the ports whose keys match."""

    leaf: Leaf
    depth: int
    """Number of the leaf's nodes that the pattern itself names; the rest is the subtree below."""
    keys: tuple[tuple[str, str], ...]
    """Key and wanted value of each list that the pattern restricts."""

    def selects(self, view: PortView) -> bool:
        """Return whether this port's leaf is selected."""
        return all(key_of(key, view) == value for key, value in self.keys)

    def node(self, view: PortView) -> Path:
        """Return the path of the node that the pattern names, for a port."""
        return self.leaf.path(view)[: self.depth]


def select(pattern: Path) -> tuple[Selection, ...]:
    """Return a pattern's selections, in the table's order; raise GnmiError for one that can never select anything."""
    for step in pattern:
        if step.name in {ANY, ANY_DEPTH} and step.keys:
            raise invalid(f"{shown(pattern)}: keys after a wildcard of names")
    pattern = tuple(step for step, after in pairwise((*pattern, _END)) if not step.name == after.name == ANY_DEPTH)
    selections = _select(pattern, LEAVES)
    if selections:
        return selections
    if bare := _select(tuple(Step(step.name) for step in pattern), LEAVES):
        keys = {(node.name, node.key) for selection in bare for node in selection.leaf.nodes}
        wrong = next(step for step in pattern if any((step.name, key) not in keys for key in step.keys))
        raise invalid(f"{shown(pattern)}: {wrong.name} has no such key")
    raise unimplemented(f"{shown(pattern)}: no such path is served here")


def within(selections: Sequence[Selection], modules: Collection[str]) -> tuple[Selection, ...]:
    """Return the selections of leaves that these modules define."""
    return tuple(selection for selection in selections if selection.leaf.module in modules)


def _select(pattern: Path, leaves: Sequence[Leaf]) -> tuple[Selection, ...]:
    selections: dict[tuple[int, tuple[tuple[str, str], ...]], Selection] = {}
    for index, leaf in enumerate(leaves):
        for depth, keys in sorted(
            _matches(pattern, leaf.nodes)
        ):  # the shortest of several matches: the largest subtree
            selections.setdefault((index, keys), Selection(leaf, depth, keys))
    return tuple(selections.values())


def _matches(pattern: Path, nodes: Sequence[Node], depth: int = 0) -> Iterator[tuple[int, tuple[tuple[str, str], ...]]]:
    """Yield each match of a pattern with the first nodes of a leaf: their number and keys."""
    if not pattern:
        yield depth, ()
        return
    step, rest = pattern[0], pattern[1:]
    if step.name == ANY_DEPTH:
        for skipped in range(len(nodes) + 1):
            yield from _matches(rest, nodes[skipped:], depth + skipped)
        return
    if not nodes or not _fits(step, nodes[0]):
        return
    here = tuple((key, value) for key, value in step.keys.items() if value != ANY)
    for end, keys in _matches(rest, nodes[1:], depth + 1):
        yield end, (*here, *keys)


def _fits(step: Step, node: Node) -> bool:
    return step.name in {ANY, node.name} and all(key == node.key for key in step.keys)
