"""Explicit paths as the routes of a set, in a canonical order."""

from __future__ import annotations

from collections.abc import Mapping

from controller.network.intents import FlowSpec, Route
from controller.network.paths.records.values import Assigned


def explicit_routes(paths: Mapping[FlowSpec, Assigned]) -> tuple[Route, ...]:
    """Return a route for each flow with an explicit path, by source, destination, protocol and ports."""
    return tuple(Route(flow, entry.path) for flow, entry in sorted(paths.items(), key=_order))


def _order(item: tuple[FlowSpec, Assigned]) -> tuple[str, ...]:
    flow = item[0]
    return tuple(map(str, (flow.src_host, flow.dst_host, flow.protocol, flow.src_port, flow.dst_port)))
