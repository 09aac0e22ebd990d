"""Batches from actual to desired, run in any order against a model of a switch's tables."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from finsy import P4IndirectAction, P4TableAction, P4TableEntry, P4TableMatch
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.reconcile import MAX_BATCH, apply, diff
from controller.network.tables.entities import Entities, Entity, EntityKey, Kind, Update, Verb, index, references, same
from controller.network.tables.flow_paths import flow_path_entities
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities

MakeTopology = Callable[..., Topology]

SELECTORS = {"ipv4_routes": "ipv4_ecmp", "ipv6_routes": "ipv6_ecmp", "ipv4_ecmp": "ipv4_ecmp", "ipv6_ecmp": "ipv6_ecmp"}


class FakeTables:
    """A switch's tables with P4Runtime's rules: preconditions of each verb, and no dangling references."""

    def __init__(self, held: Entities) -> None:
        self.held: dict[EntityKey, Entity] = dict(held)
        self.check()

    def execute(self, update: Update) -> None:
        if update.key.kind is Kind.DEFAULT:
            assert update.verb is Verb.MODIFY
        elif update.verb is Verb.INSERT:
            assert update.key not in self.held, f"{update}: already there"
        else:
            assert update.key in self.held, f"{update}: not there"
            assert update.verb is Verb.DELETE or not same(self.held[update.key], update.entity), f"{update}: rewritten"
        self.held = apply(self.held, [update])
        self.check()

    def check(self) -> None:
        for key, entity in self.held.items():
            needed = references(entity)
            for number in needed[1] if needed else ():
                assert needed is not None
                target = EntityKey(needed[0], SELECTORS[key.table], (), number)
                assert target in self.held, f"{key} refers to {target}, which is not there"

    def routes(self) -> set[EntityKey]:
        return {key for key in self.held if key.table.endswith("_routes")}


def state(topology: Topology, flows: list[int]) -> Entities:
    """Return switch a's tables with some of three explicit routes."""
    choices = (
        Route(FlowSpec("ha", "hd"), ("a", "b", "d")),
        Route(FlowSpec("ha", "hb", 17), ("a", "c", "b")),
        Route(FlowSpec("ha", "hc"), ("a", "b", "c")),
    )
    routes = RouteSet(1, tuple(choices[flow] for flow in flows))
    return {**base_entities(topology)["a"], **flow_path_entities(topology, routes)["a"]}


def consistent(entities: Entities, keep: list[bool]) -> Entities:
    """Drop random entities, and all that would refer to them."""
    held = {key: entity for (key, entity), kept in zip(entities.items(), keep, strict=False) if kept}
    for kind in (Kind.GROUP, Kind.ENTRY):
        for key, entity in list(held.items()):
            needed = references(entity) if key.kind is kind else None
            if needed and any(EntityKey(needed[0], SELECTORS[key.table], (), n) not in held for n in needed[1]):
                del held[key]
    return held


delays = st.tuples(*[st.integers(0, 2)] * 5)
flow_sets = st.lists(st.integers(0, 2), unique=True)
switch_states = st.tuples(delays, flow_sets, st.lists(st.booleans(), min_size=60, max_size=60))


@settings(max_examples=150, deadline=None)
@given(before=switch_states, after=st.tuples(delays, flow_sets), seed=st.integers(0, 2**32))
def test_reconcile_leaves_no_dangling_reference_or_lost_route(
    diamond_of: MakeTopology,
    before: tuple[tuple[int, ...], list[int], list[bool]],
    after: tuple[tuple[int, ...], list[int]],
    seed: int,
) -> None:
    actual = consistent(state(diamond_of(before[0]), before[1]), before[2])
    desired = state(diamond_of(after[0]), after[1])
    tables, rng = FakeTables(actual), random.Random(seed)
    lasting = tables.routes() & FakeTables(desired).routes()
    for batch in diff(desired, actual):
        for update in rng.sample(batch, len(batch)):
            tables.execute(update)
            assert lasting <= tables.routes()
    assert tables.held.keys() == desired.keys()
    assert all(same(tables.held[key], desired[key]) for key in desired)
    assert diff(desired, tables.held) == []


def test_empty_switch_gets_paths_then_routes_then_telemetry(diamond: Topology) -> None:
    batches = diff(state(diamond, [0]), {})
    tables = [batch[0].key.table for batch in batches if batch[0].key.kind is Kind.ENTRY]
    assert tables == [
        "egress_ports",
        "port_roles",
        "ipv4_flow_paths",
        "ipv6_flow_paths",
        "ipv4_routes",
        "ipv6_routes",
        "ipv4_watchlist",
        "ipv6_watchlist",
    ]


def test_a_default_action_is_reset_not_deleted() -> None:
    node = P4TableEntry("node", action=P4TableAction("set_node", node_id=3), is_default_action=True)
    batches = diff({}, index([node]))
    assert [(update.verb, update.entity.action) for batch in batches for update in batch] == [(Verb.MODIFY, None)]  # type: ignore[union-attr]
    assert diff({}, index([P4TableEntry("node", is_default_action=True)])) == []


def test_a_changed_action_is_modified_in_place() -> None:
    old, new = (
        P4TableEntry("ipv4_routes", match=P4TableMatch(dst_addr=(1, 32)), action=P4IndirectAction(member_id=member))
        for member in (1, 2)
    )
    [[update]] = diff(index([new]), index([old]))
    assert (update.verb, update.entity) == (Verb.MODIFY, new)


@pytest.mark.parametrize("count", [0, 1, MAX_BATCH, MAX_BATCH + 1])
def test_batches_are_bounded(count: int) -> None:
    entries = [
        P4TableEntry("ipv4_flow_paths", match=P4TableMatch(src_addr=(n, 0xFFFFFFFF)), priority=1) for n in range(count)
    ]
    sizes = [len(batch) for batch in diff(index(entries), {})]
    assert sum(sizes) == count
    assert max(sizes, default=0) <= MAX_BATCH
