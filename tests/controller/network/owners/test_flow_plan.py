"""Changing paths across switches: no intermediate state loses or loops a packet."""

from __future__ import annotations

import random
from collections.abc import Mapping
from ipaddress import IPv4Address
from itertools import pairwise

import networkx as nx
from finsy import P4TableAction, P4TableEntry
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.network.base_paths import NextHops, next_hops
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.owners.flow_plan import plan, restorable
from controller.network.owners.steps import Phase, UpdatePlan
from controller.network.reconcile import apply
from controller.network.tables.entities import Entities, Verb
from controller.network.tables.flow_paths import flow_path_entities
from dataplane.topology.values import Endpoint, HostNode, Link, SwitchNode, Topology

FLOW = FlowSpec("hs", "hd")


def route_set(*paths: str) -> RouteSet:
    """Return the flow routed over a path such as 'abd', or no route."""
    return RouteSet(1, tuple(Route(FlowSpec("ha", "hd"), tuple(path)) for path in paths))


def held_after(held: Mapping[str, Entities], updates: Mapping[str, tuple[object, ...]]) -> dict[str, Entities]:
    """Return every switch's entries after a step."""
    return {switch: apply(entities, updates.get(switch, ())) for switch, entities in held.items()}  # type: ignore[arg-type]


def moved(topology: Topology, old: RouteSet, new: RouteSet, live: str = "abcd") -> UpdatePlan:
    """Return the plan from one set of routes to another."""
    return plan(topology, flow_path_entities(topology, new), flow_path_entities(topology, old), set(live))


def shape(topology: Topology, old: RouteSet, new: RouteSet, live: str = "abcd") -> list[tuple[str, str, str]]:
    """Return a plan's IPv4 updates as (phase, verb, switches)."""
    result = []
    for step in moved(topology, old, new, live).steps:
        verbs = {update.verb[0] for updates in step.updates.values() for update in updates}
        result.append((str(step.phase), "".join(sorted(verbs)), "".join(sorted(step.updates))))
    return result


def test_a_new_path_is_made_from_its_end_to_its_source(diamond: Topology) -> None:
    assert shape(diamond, route_set(), route_set("abd")) == [("make", "i", "d"), ("make", "i", "b"), ("make", "i", "a")]


def test_a_moved_path_is_broken_only_after_the_source_has_moved(diamond: Topology) -> None:
    assert shape(diamond, route_set("abd"), route_set("acd")) == [
        ("make", "i", "c"),
        ("make", "m", "a"),
        ("break", "d", "b"),
    ]


def test_a_path_given_up_is_broken_from_its_source(diamond: Topology) -> None:
    assert shape(diamond, route_set("abd"), route_set()) == [
        ("break", "d", "a"),
        ("break", "d", "b"),
        ("break", "d", "d"),
    ]


def test_nothing_is_planned_for_reconciled_entries(diamond: Topology) -> None:
    assert shape(diamond, route_set("abd"), route_set("abd")) == []


def test_flow_waits_for_a_missing_switch_and_others_do_not(diamond: Topology) -> None:
    assert shape(diamond, route_set(), route_set("abd"), live="acd") == []
    away = shape(diamond, route_set("abd"), route_set("acd"), live="acd")
    assert away == [("make", "i", "c"), ("make", "m", "a")]
    pending = moved(diamond, route_set("abd"), route_set("acd"), live="acd").pending
    assert {key.table for key in pending} == {"ipv4_flow_paths", "ipv6_flow_paths"}


def test_a_refused_entry_is_left_alone(diamond: Topology) -> None:
    desired = flow_path_entities(diamond, route_set("abd"))
    keys = frozenset(desired["a"])
    planned = plan(diamond, desired, {}, set("abcd"), keys)
    assert (planned.steps, planned.pending) == ((), keys)


def test_returning_switch_first_gets_only_onward_entries(diamond: Topology) -> None:
    desired = flow_path_entities(diamond, route_set("abd"))
    assert restorable(diamond, "b", desired, {"a": {}, "d": {}}) == {}
    assert restorable(diamond, "b", desired, {"a": {}, "d": desired["d"]}) == desired["b"]
    assert restorable(diamond, "d", desired, {}) == desired["d"]


@st.composite
def networks(draw: st.DrawFn) -> tuple[Topology, list[tuple[str, ...]]]:
    """Return a connected network of six switches with random delays, and every simple path between its two hosts."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    names = "abcdef"
    cables = {(names[rng.randrange(index)], name) for index, name in enumerate(names) if index}
    cables |= {tuple(sorted(rng.sample(names, 2))) for _ in range(draw(st.integers(0, 8)))}  # type: ignore[misc]
    ports = dict.fromkeys(names, 1)
    links = [Link(Endpoint("hs", 0), Endpoint("a", 1), 10, 0, 9), Link(Endpoint("hd", 0), Endpoint("f", 1), 10, 0, 9)]
    for tail, head in sorted(cables):
        ports[tail] += 1
        ports[head] += 1
        links.append(Link(Endpoint(tail, ports[tail]), Endpoint(head, ports[head]), 10, rng.randrange(4), 9))
    hosts = (HostNode("hs", 1, IPv4Address("10.0.0.1")), HostNode("hd", 2, IPv4Address("10.0.0.2")))
    switches = tuple(SwitchNode(name, index) for index, name in enumerate(names, 1))
    topology = Topology("random", switches, hosts, tuple(links))
    paths = [tuple(path) for path in nx.all_simple_paths(nx.Graph(sorted(cables)), "a", "f")]
    return topology, paths


def ways_on(topology: Topology, hops: NextHops, held: Mapping[str, Entities], switch: str) -> set[str]:
    """Return the flow's next hops at a switch: by its entry, else by any base route."""
    for entity in held[switch].values():
        assert isinstance(entity, P4TableEntry)
        assert isinstance(entity.action, P4TableAction)
        return {topology.neighbours[switch][entity.action.args["egress_port"]].node}
    return {"hd"} if switch == "f" else {link.head.node for link in hops["f"][switch]}


def check_loop_free(topology: Topology, hops: NextHops, held: Mapping[str, Entities]) -> None:
    """Fail unless packets reach the host from wherever they are."""
    graph = nx.DiGraph((name, to) for name in held for to in ways_on(topology, hops, held, name))
    assert nx.is_directed_acyclic_graph(graph), nx.find_cycle(graph)
    assert [node for node in graph if graph.out_degree(node) == 0] == ["hd"]


@settings(max_examples=200, deadline=None)
@given(network=networks(), data=st.data())
def test_every_intermediate_state_delivers_every_packet(
    network: tuple[Topology, list[tuple[str, ...]]], data: st.DataObject
) -> None:
    """Move the flow through several route sets; abandon some plans halfway; apply a step's updates in any order."""
    topology, paths = network
    hops = next_hops(topology)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    held: dict[str, Entities] = {node.name: {} for node in topology.switches}
    for version, path in enumerate(data.draw(st.lists(st.sampled_from([None, *paths]), min_size=1, max_size=5)), 1):
        desired = flow_path_entities(topology, RouteSet(version, () if path is None else (Route(FLOW, path),)))
        steps = plan(topology, desired, held, set("abcdef")).steps
        stop = rng.randrange(len(steps) + 1) if rng.random() < 0.5 else len(steps)
        for step in steps[:stop]:
            singles = [(switch, update) for switch, updates in step.updates.items() for update in updates]
            for switch, update in rng.sample(singles, len(singles)):
                held = held_after(held, {switch: (update,)})
                check_loop_free(topology, hops, held)
        if stop == len(steps):
            assert {s: set(e) for s, e in held.items()} == {s: set(e) for s, e in desired.items()}


def test_phases_do_not_mix() -> None:
    topology, paths = _square()
    old, new = (flow_path_entities(topology, RouteSet(1, (Route(FLOW, path),))) for path in paths)
    steps = plan(topology, new, old, set("abcdef")).steps
    phases = [step.phase for step in steps]
    assert phases == sorted(phases, key=[Phase.MAKE, Phase.BREAK].index)
    assert all(u.verb is Verb.DELETE for s in steps if s.phase is Phase.BREAK for us in s.updates.values() for u in us)


def _square() -> tuple[Topology, list[tuple[str, ...]]]:
    paths: list[tuple[str, ...]] = [("a", "b", "c", "f"), ("a", "d", "e", "f")]
    cables = sorted({pair for path in paths for pair in pairwise(path)})
    links = [Link(Endpoint("hs", 0), Endpoint("a", 9), 10, 0, 9), Link(Endpoint("hd", 0), Endpoint("f", 9), 10, 0, 9)]
    ports = dict.fromkeys("abcdef", 0)
    for tail, head in cables:
        ports[tail] += 1
        ports[head] += 1
        links.append(Link(Endpoint(tail, ports[tail]), Endpoint(head, ports[head]), 10, 1, 9))
    hosts = (HostNode("hs", 1, IPv4Address("10.0.0.1")), HostNode("hd", 2, IPv4Address("10.0.0.2")))
    switches = tuple(SwitchNode(name, index) for index, name in enumerate("abcdef", 1))
    return Topology("square", switches, hosts, tuple(links)), paths
