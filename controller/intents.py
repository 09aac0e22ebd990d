"""What deciders want, before anything knows how a table looks.

Frozen values that only controller/tables turns into entries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class FlowSpec:
    """Traffic from one host to another, by name; with protocol and ports None it is all of it, both IP families."""

    src_host: str
    dst_host: str
    protocol: int | None = None
    src_port: int | None = None
    dst_port: int | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """A flow is to cross exactly these switches, from its source host's switch to its destination's."""

    flow: FlowSpec
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeightedRoute:
    """At one switch, what has no explicit route and goes to hosts of another one is spread over these neighbours.

    `next_hops` are (switch, weight), weights from 1; flows stay together.
    """

    switch: str
    destination: str
    next_hops: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RouteSet:
    """Every explicit route that is wanted now, and every weighted one; what is absent follows the base routes.

    `version` grows by one with each change.
    """

    version: int
    routes: tuple[Route, ...]
    weighted: tuple[WeightedRoute, ...] = ()
