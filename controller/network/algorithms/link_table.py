"""The directed links between a topology's switches as columns: fixed properties, and live ones from telemetry."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from controller.common.errors import PathError
from controller.network.algorithms.costs import FORBIDDEN, MAX_SWITCHES, Costs, link_costs
from dataplane.topology.values import LinkKey, Topology

Ids = npt.NDArray[np.uint32]
Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MOST = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """Every directed link between switches has a row; rows are in order of tail switch, then of its port.

    A switch's number is its place in the topology. `delay_ns`, `available_bps` and `alive` are changed in place
    (`controller.network.paths.deciding.beliefs`, from a snapshot); they begin as an idle fabric's. The links that leave
    a switch are the rows from `out_start[switch]` up to `out_start[switch + 1]`; those that enter it are the rows
    `in_link[in_start[switch]:in_start[switch + 1]]`.
    """

    switches: tuple[str, ...]
    links: tuple[LinkKey, ...]
    switch_number: dict[str, int]
    link_number: dict[LinkKey, int]
    tail: Ids
    head: Ids
    rate_bps: Longs
    propagation_ns: Longs
    delay_ns: Longs
    available_bps: Longs
    alive: Flags
    out_start: Ids
    in_start: Ids
    in_link: Ids

    @classmethod
    def of(cls, topology: Topology) -> LinkTable:
        """Return a topology's links, idle and alive; raise PathError for a fabric of more than 65,535 switches."""
        names = tuple(node.name for node in topology.switches)
        if len(names) > MAX_SWITCHES:
            raise PathError(f"topology {topology.name} has {len(names)} switches, more than {MAX_SWITCHES}")
        number = {name: index for index, name in enumerate(names)}
        inner = (link for link in topology.directed_links.values() if link.tail.node in number)
        rows = sorted(
            (link for link in inner if link.head.node in number),
            key=lambda link: (number[link.tail.node], link.tail.port),
        )
        tail = _ids(number[link.tail.node] for link in rows)
        head = _ids(number[link.head.node] for link in rows)
        rate_bps = np.array([link.rate_bps for link in rows], np.int64)
        propagation_ns = np.array([link.delay_ns for link in rows], np.int64)
        keys = tuple(link.key for link in rows)
        return cls(
            switches=names,
            links=keys,
            switch_number=number,
            link_number={key: index for index, key in enumerate(keys)},
            tail=tail,
            head=head,
            rate_bps=rate_bps,
            propagation_ns=propagation_ns,
            delay_ns=propagation_ns.copy(),
            available_bps=rate_bps.copy(),
            alive=np.ones(len(rows), np.bool_),
            out_start=_starts(tail, len(names)),
            in_start=_starts(head, len(names)),
            in_link=np.argsort(head, kind="stable").astype(np.uint32),
        )

    def copy(self) -> LinkTable:
        """Return a table of the same links with its own live columns."""
        live = {name: getattr(self, name).copy() for name in ("delay_ns", "available_bps", "alive")}
        return replace(self, **live)

    def costs(self) -> Costs:
        """Return each link's current cost; a dead one is forbidden."""
        return link_costs(self.delay_ns, self.alive)

    def configured_costs(self) -> Costs:
        """Return each link's cost by propagation delay, dead or not, which base routes follow."""
        return link_costs(self.propagation_ns, np.ones(len(self.links), np.bool_))

    def costs_around(self, down: Set[LinkKey], drained: Set[LinkKey] = frozenset()) -> Costs:
        """Return configured costs without links that are down; a path with fewer drained links costs less than others.

        Links that the table lacks are left out.
        """
        costs = self.configured_costs()
        avoided = [self.link_number[key] for key in drained if key in self.link_number]
        dearest = int(costs.max(initial=1)) * len(self.switches)
        # The bound keeps a path over all drained links within 63 bits; only delays of seconds come near it.
        costs[avoided] += np.uint64(min(dearest, _MOST // (len(avoided) + 1)))
        costs[[self.link_number[key] for key in down if key in self.link_number]] = FORBIDDEN
        return costs

    def flags(self, links: Set[LinkKey]) -> Flags:
        """Return which rows these links are."""
        flags = np.zeros(len(self.links), np.bool_)
        flags[[self.link_number[key] for key in links]] = True
        return flags

    def leaving(self, switch: int) -> range:
        """Return the rows of the links that leave a switch."""
        return range(int(self.out_start[switch]), int(self.out_start[switch + 1]))

    def entering(self, switch: int) -> Ids:
        """Return the rows of the links that enter a switch."""
        return self.in_link[self.in_start[switch] : self.in_start[switch + 1]]

    def rows(self, path: Sequence[str]) -> Ids:
        """Return the rows of the links between a path's switches; raise PathError for a missing link."""
        try:
            return _ids(self.link_number[LinkKey(tail, head)] for tail, head in pairwise(path))
        except KeyError as error:
            raise PathError(f"there is no link {error.args[0]}") from None

    def path(self, src: int, rows: Sequence[int] | Ids) -> tuple[str, ...]:
        """Return the names of the switches that links lead over, from a switch on."""
        return (self.switches[src], *(self.switches[self.head[row]] for row in rows))


def _ids(numbers: object) -> Ids:
    return np.fromiter(numbers, np.uint32)  # type: ignore[call-overload, no-any-return]


def _starts(ends: Ids, switches: int) -> Ids:
    """Return where each switch's links begin when links are grouped by an end."""
    starts = np.zeros(switches + 1, np.uint32)
    np.cumsum(np.bincount(ends, minlength=switches), out=starts[1:])
    return starts
