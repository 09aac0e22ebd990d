"""The path server's messages: round trips of values, and one-line refusals of impossible requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from controller.network.intents import FlowSpec, Route, RouteSet, WeightedRoute
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.graph import PathFigures
from controller.network.paths.engineering.engineer import EngineeringRound
from controller.network.paths.records.values import (
    Explanation,
    History,
    HistoryQuery,
    LinkChange,
    PathServerStatus,
    RecordQuery,
    RecordRow,
)
from controller.network.paths.service import messages
from controller.network.paths.service import paths_pb2 as pb
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import parse, parse_request
from dataplane.rpc.values import Mirror
from dataplane.topology.values import LinkKey

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=4)
PATHS = st.lists(NAMES, max_size=4).map(tuple)
NS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 2**31)
LINKS = st.builds(LinkKey, NAMES, NAMES)
FLOWS = st.builds(
    FlowSpec,
    NAMES,
    NAMES,
    st.none() | st.integers(0, 255),
    st.none() | st.integers(0, 65535),
    st.none() | st.integers(0, 65535),
)
FIGURES = st.builds(PathFigures, PATHS, NS, NS, NS, st.none() | LINKS, st.none() | LINKS, NS)
DECISIONS = st.builds(
    Decision, NS, FLOWS, PATHS, PATHS, st.lists(FIGURES, max_size=2).map(tuple), NAMES, st.none() | LINKS
)
WEIGHTS = st.lists(st.tuples(NAMES, SMALL), max_size=3).map(tuple)
SHARES = st.floats(0, 9)
REBALANCES = st.builds(Rebalance, NS, NAMES, NAMES, WEIGHTS, WEIGHTS, st.none() | LINKS, SHARES, SHARES, NAMES)
ROUNDS = st.builds(EngineeringRound, NS, SHARES, SHARES, PATHS, NAMES)
ROWS = st.builds(RecordRow, NS, st.integers(0, 2**64 - 1), SMALL, NAMES, NAMES, st.none() | NS, st.none() | NS)
ROUTE_SETS = st.builds(
    RouteSet,
    SMALL,
    st.lists(st.builds(Route, FLOWS, PATHS), max_size=4).map(tuple),
    st.lists(st.builds(WeightedRoute, NAMES, NAMES, WEIGHTS), max_size=3).map(tuple),
    st.lists(st.builds(Route, FLOWS, PATHS), max_size=2).map(tuple),
)
CASES: list[tuple[Mirror[Any, Any], st.SearchStrategy[Any]]] = [
    (messages.FLOW, FLOWS),
    (messages.DECISION, DECISIONS),
    (messages.REBALANCE, REBALANCES),
    (
        messages.EXPLANATION,
        st.builds(
            Explanation,
            FLOWS,
            FIGURES,
            st.lists(FIGURES, max_size=2).map(tuple),
            NS,
            NAMES,
            st.lists(DECISIONS, max_size=1).map(tuple),
            st.lists(ROWS, max_size=2).map(tuple),
            st.none() | NS,
            st.booleans(),
            PATHS,
        ),
    ),
    (
        messages.HISTORY,
        st.builds(
            History,
            st.lists(DECISIONS, max_size=2).map(tuple),
            st.lists(ROUNDS, max_size=2).map(tuple),
            st.lists(REBALANCES, max_size=2).map(tuple),
        ),
    ),
    (messages.HISTORY_QUERY, st.builds(HistoryQuery, st.none() | NAMES, st.none() | NAMES, NS, NS, SMALL)),
    (messages.RECORD_QUERY, st.builds(RecordQuery, st.none() | NAMES, link=st.none() | LINKS, limit=SMALL)),
    (messages.PIN, st.builds(Route, FLOWS, PATHS)),
    (messages.LINK_CHANGE, st.builds(LinkChange, LINKS, st.booleans())),
    (
        messages.STATUS,
        st.builds(
            PathServerStatus,
            SMALL,
            SMALL,
            SMALL,
            st.none() | NS,
            st.none() | NS,
            st.dictionaries(NAMES, SMALL, max_size=3),
            st.none() | NAMES,
            st.booleans(),
            NS,
            st.dictionaries(NAMES, SMALL, max_size=3),
            SMALL,
        ),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].kind.__name__)
def test_each_value_arrives_as_it_was(case: tuple[Mirror[Any, Any], st.SearchStrategy[Any]]) -> None:
    mirror, values = case

    @given(values)
    def arrives(value: object) -> None:
        assert mirror.value(mirror.schema.FromString(mirror.message(value).SerializeToString())) == value

    arrives()


@given(ROUTE_SETS)
def test_a_set_of_routes_arrives_as_it_was(routes: RouteSet) -> None:
    data = messages.route_set_message(routes).SerializeToString()
    assert messages.route_set_of(pb.RouteSet.FromString(data)) == routes


@given(ROUTE_SETS, st.data())
def test_columns_that_do_not_fit_are_refused(routes: RouteSet, data: st.DataObject) -> None:
    message = messages.route_set_message(routes)
    columns = [(part, field.name) for part in (message.routes, message.weighted) for field, _ in part.ListFields()]
    if not columns:
        return
    part, name = data.draw(st.sampled_from(columns))
    getattr(part, name).append(data.draw(st.integers(1, 2**31 - 1)))
    with pytest.raises(MessageError) as caught:
        messages.route_set_of(message)
    assert "\n" not in str(caught.value)


REQUESTS: list[tuple[type[Message], Callable[[Any], object]]] = [
    (pb.Flow, messages.flow_asked),
    (pb.GetHistoryRequest, messages.history_asked),
    (pb.GetRecordsRequest, messages.records_asked),
    (pb.ReportLinkRequest, messages.link_reported),
]


@pytest.mark.parametrize(("schema", "asked"), REQUESTS)
def test_no_bytes_do_more_than_be_refused(schema: type[Message], asked: Callable[[Any], object]) -> None:
    @given(st.binary(max_size=60))
    def refused(data: bytes) -> None:
        try:
            asked(parse_request(schema, data))
        except MessageError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message

    refused()


@given(st.binary(max_size=200))
def test_no_bytes_of_an_answer_do_more_than_fail_to_decode(data: bytes) -> None:
    answers: list[tuple[type[Message], Callable[[Any], object]]] = [
        (pb.RouteSet, messages.route_set_of),
        (pb.Decision, messages.DECISION.value),
    ]
    for schema, value in answers:
        try:
            value(parse(schema, data))
        except MessageError:
            continue


@pytest.mark.parametrize(
    ("asked", "request_", "reason"),
    [
        (messages.flow_asked, pb.Flow(dst_host="h"), "src_host: a name has 1 to 256 printable characters"),
        (messages.flow_asked, pb.Flow(src_host="h" * 257, dst_host="h"), "src_host: a name has 1 to 256 printable"),
        (messages.flow_asked, pb.Flow(src_host="a", dst_host="b\n"), "dst_host: a name has 1 to 256 printable"),
        (messages.flow_asked, pb.Flow(src_host="a", dst_host="b", protocol=256), "protocol is 256, not in 0 to 255"),
        (messages.flow_asked, pb.Flow(src_host="a", dst_host="b", dst_port=65536), "dst_port is 65536, not in 0"),
        (messages.history_asked, pb.GetHistoryRequest(limit=10_001), "limit is 10001, not in 0 to 10000"),
        (messages.history_asked, pb.GetHistoryRequest(src="x" * 999), "src: a name has 1 to 256"),
        (messages.records_asked, pb.GetRecordsRequest(dst=""), "dst: a name has 1 to 256"),
        (messages.link_reported, pb.ReportLinkRequest(up=True), "millrace.paths.v1.ReportLinkRequest has no link"),
        (messages.link_reported, pb.ReportLinkRequest(link={"src": "a"}), "link.dst: a name has 1 to 256"),
    ],
)
def test_a_request_that_cannot_be_is_refused(asked: Callable[[Any], object], request_: Message, reason: str) -> None:
    with pytest.raises(MessageError, match=f"^{reason}"):
        asked(request_)
