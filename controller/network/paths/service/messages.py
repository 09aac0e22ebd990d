"""Conversion of the path server's values to messages and back; the contents of requests are checked here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise
from typing import Final, TypeVar

from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.records.values import (
    DrainChange,
    DrainEffect,
    DrainList,
    Explanation,
    History,
    HistoryQuery,
    LinkChange,
    PathServerStatus,
    RecordQuery,
)
from controller.network.paths.service import paths_pb2 as pb
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import check_count, checked_name, checked_range, checked_text
from dataplane.rpc.values import Mirror
from dataplane.topology import link_pb2
from dataplane.topology.values import LinkKey

FLOW: Final = Mirror(FlowSpec, pb.Flow)
DECISION: Final = Mirror(Decision, pb.Decision)
REBALANCE: Final = Mirror(Rebalance, pb.Rebalance)
EXPLANATION: Final = Mirror(Explanation, pb.Explanation)
HISTORY: Final = Mirror(History, pb.History)
HISTORY_QUERY: Final = Mirror(HistoryQuery, pb.GetHistoryRequest)
RECORD_QUERY: Final = Mirror(RecordQuery, pb.GetRecordsRequest)
PIN: Final = Mirror(Route, pb.PinRequest)
LINK_CHANGE: Final = Mirror(LinkChange, pb.ReportLinkRequest)
DRAIN_CHANGE: Final = Mirror(DrainChange, pb.DrainChange)
DRAIN_EFFECT: Final = Mirror(DrainEffect, pb.DrainEffect)
DRAIN_LIST: Final = Mirror(DrainList, pb.DrainList)
STATUS: Final = Mirror(PathServerStatus, pb.Status)

MOST_DECISIONS: Final = 10_000
"""Most decisions in one answer."""
MOST_SWITCHES: Final = 1_000
"""Most switches of a path."""
_ANY: Final = -1
_HEADER: Final = {"protocol": 0xFF, "src_port": 0xFFFF, "dst_port": 0xFFFF}

T = TypeVar("T")


def flow_asked(message: pb.Flow) -> FlowSpec:
    """Return the flow of a request; raise MessageError."""
    return _checked_flow(FLOW.value(message))


def pin_asked(message: pb.PinRequest) -> Route:
    """Return the flow and the path of a pin request; raise MessageError."""
    check_count(message.switches, MOST_SWITCHES, "switches")
    pin = PIN.value(message)
    for switch in pin.switches:
        checked_name(switch, "switches")
    _checked_flow(pin.flow)
    return pin


def _checked_flow(flow: FlowSpec) -> FlowSpec:
    checked_name(flow.src_host, "src_host")
    checked_name(flow.dst_host, "dst_host")
    for name, most in _HEADER.items():
        checked_range(getattr(flow, name) or 0, 0, most, name)
    return flow


def history_asked(message: pb.GetHistoryRequest) -> HistoryQuery:
    """Return the decisions that a request selects; raise MessageError."""
    query = HISTORY_QUERY.value(message)
    _check_names(src=query.src, dst=query.dst)
    checked_range(query.limit, 0, MOST_DECISIONS, "limit")
    return query


def records_asked(message: pb.GetRecordsRequest) -> RecordQuery:
    """Return the hop records that a request selects; raise MessageError."""
    query = RECORD_QUERY.value(message)
    _check_names(src=query.src, dst=query.dst)
    if query.link is not None:
        _check_link(query.link)
    return query


def link_reported(message: pb.ReportLinkRequest) -> LinkChange:
    """Return a reported condition of a link; raise MessageError."""
    change = LINK_CHANGE.value(message)
    _check_link(change.link)
    return change


def drain_asked(message: pb.DrainChange) -> DrainChange:
    """Return a requested change of a drain; raise MessageError."""
    change = DRAIN_CHANGE.value(message)
    _check_names(element=change.element, revision=change.revision)
    checked_text(change.by, "by")
    checked_text(change.note, "note")
    return change


def _check_link(link: LinkKey) -> None:
    _check_names(**{"link.src": link.src, "link.dst": link.dst})


def _check_names(**names: str | None) -> None:
    for field, name in names.items():
        if name is not None:
            checked_name(name, field)


def route_set_message(routes: RouteSet) -> pb.RouteSet:
    """Return a set of routes as columns."""
    places: dict[str, int] = {}
    message = pb.RouteSet(
        version=routes.version,
        routes=_routes_message(routes.routes, places),
        weighted=_weighted_message(routes.weighted, places),
        pins=_routes_message(routes.pins, places),
        traceparent=routes.traceparent,
        token=routes.token,
        drained=[link_pb2.Link(src=link.src, dst=link.dst) for link in routes.drained],
    )
    message.names.extend(places)
    return message


def _routes_message(routes: Sequence[Route], places: dict[str, int]) -> pb.Routes:
    flows = [route.flow for route in routes]
    return pb.Routes(
        src_host=[places.setdefault(flow.src_host, len(places)) for flow in flows],
        dst_host=[places.setdefault(flow.dst_host, len(places)) for flow in flows],
        protocol=_or_any([flow.protocol for flow in flows]),
        src_port=_or_any([flow.src_port for flow in flows]),
        dst_port=_or_any([flow.dst_port for flow in flows]),
        lengths=[len(route.switches) for route in routes],
        hops=[places.setdefault(switch, len(places)) for route in routes for switch in route.switches],
    )


def _or_any(column: list[int | None]) -> list[int]:
    """Return a column in which None means any; no column if all of it is None."""
    return [] if column.count(None) == len(column) else [_ANY if value is None else value for value in column]


def _weighted_message(routes: Sequence[WeightedRoute], places: dict[str, int]) -> pb.WeightedRoutes:
    spread = list(chain.from_iterable(route.next_hops for route in routes))
    return pb.WeightedRoutes(
        switch=[places.setdefault(route.switch, len(places)) for route in routes],
        destination=[places.setdefault(route.destination, len(places)) for route in routes],
        lengths=[len(route.next_hops) for route in routes],
        next_hops=[places.setdefault(switch, len(places)) for switch, _ in spread],
        weights=[weight for _, weight in spread],
    )


def route_set_of(message: pb.RouteSet) -> RouteSet:
    """Return the set of routes of these columns; raise MessageError if their lengths differ."""
    names = message.names[:]
    explicit, pins = _routes_of(message.routes, names), _routes_of(message.pins, names)
    weighted = _weighted_of(message.weighted, names)
    drained = tuple(LinkKey(link.src, link.dst) for link in message.drained)
    return RouteSet(message.version, explicit, weighted, pins, drained, message.traceparent, message.token)


def _routes_of(message: pb.Routes, names: Sequence[str]) -> tuple[Route, ...]:
    count = len(message.lengths)
    flows = map(
        FlowSpec,
        _sized(_named(names, message.src_host, "src_host"), count, "src_host"),
        _sized(_named(names, message.dst_host, "dst_host"), count, "dst_host"),
        *(_any_as_none(getattr(message, field)[:], count, most, field) for field, most in _HEADER.items()),
    )
    paths = _cut(_named(names, message.hops, "hops"), message.lengths[:], "hops")
    return tuple(map(Route, flows, paths))


def _weighted_of(message: pb.WeightedRoutes, names: Sequence[str]) -> tuple[WeightedRoute, ...]:
    count = len(message.lengths)
    switches = _sized(_named(names, message.switch, "switch"), count, "switch")
    destinations = _sized(_named(names, message.destination, "destination"), count, "destination")
    next_hops = _named(names, message.next_hops, "next_hops")
    weights = _sized(message.weights[:], len(next_hops), "weights")
    spread = _cut(list(zip(next_hops, weights, strict=True)), message.lengths[:], "next_hops")
    return tuple(map(WeightedRoute, switches, destinations, spread))


def _named(names: Sequence[str], places: Sequence[int], field: str) -> list[str]:
    try:
        return list(map(names.__getitem__, places))
    except IndexError:
        raise MessageError(f"{field}: index {max(places)} out of range of {len(names)} names") from None


def _sized(column: list[T], count: int, field: str) -> list[T]:
    if len(column) != count:
        raise MessageError(f"{field} has {len(column)} entries for {count} rows")
    return column


def _any_as_none(column: list[int], count: int, most: int, field: str) -> Sequence[int | None]:
    if not column:
        return [None] * count
    checked_range(min(column), _ANY, most, field)
    checked_range(max(column), _ANY, most, field)
    return [None if value == _ANY else value for value in _sized(column, count, field)]


def _cut(column: list[T], lengths: list[int], field: str) -> list[tuple[T, ...]]:
    """Return a column's parts of these lengths, one after the other."""
    ends = list(accumulate(lengths, initial=0))
    _sized(column, ends[-1], field)
    return [tuple(column[begin:end]) for begin, end in pairwise(ends)]
