"""Segment lists: what a network of routers does with them is what the path server wanted."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from controller.common.errors import ControllerError
from controller.network.intents import FlowSpec, Route
from controller.network.segment_lists import Metric, SegmentLists, SegmentSettings, SegmentsOf
from dataplane.config import loads
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology

ABILENE = load_topology("abilene")
FLOW = FlowSpec("h-losa", "h-chin")


def _mpls(topology: Topology, **more: object) -> SegmentSettings:
    """Return labels of all routers and links of a topology."""
    inner = [key for key in topology.directed_links if {key.src, key.dst} <= topology.switch.keys()]
    nodes = {name: 16_000 + number for number, name in enumerate(topology.switch)}
    links = {str(key): 30_000 + number for number, key in enumerate(inner)}
    return SegmentSettings("", mpls=SegmentsOf(nodes, links), **more)  # type: ignore[arg-type]


def _graph(topology: Topology, metric: Metric) -> nx.DiGraph:
    graph = nx.DiGraph()
    for key, link in topology.directed_links.items():
        if {key.src, key.dst} <= topology.switch.keys():
            graph.add_edge(key.src, key.dst, cost=1 if metric is Metric.HOPS else link.delay_ns)
    return graph


def _taken(graph: nx.DiGraph, settings: SegmentSettings, start: str, segments: tuple[str | int, ...]) -> list[str]:
    """Return the way of a packet with these labels through routers with ECMP; fail if there is more than one."""
    assert settings.mpls is not None
    nodes = {label: name for name, label in settings.mpls.nodes.items()}
    links = {label: name for name, label in settings.mpls.links.items()}
    way = [start]
    for segment in segments:
        if segment in links:
            tail, _, head = links[segment].partition("->")
            assert tail == way[-1]
            way.append(head)
        else:
            (part,) = nx.all_shortest_paths(graph, way[-1], nodes[segment], weight="cost")
            way += part[1:]
    return way


@pytest.mark.parametrize("metric", list(Metric))
@pytest.mark.parametrize("name", ["abilene", "leaf-spine:spines=3,leaves=4", "geant"])
def test_routers_take_the_wanted_path(name: str, metric: Metric) -> None:
    topology = load_topology(name)
    settings, graph, rng = _mpls(topology, metric=metric), _graph(topology, metric), random.Random(5)
    lists = SegmentLists(topology, settings)
    lengths = []
    for _ in range(60):
        src, dst = rng.sample(sorted(topology.switch), 2)
        path = tuple(rng.choice(list(nx.all_simple_paths(graph, src, dst, cutoff=6)) or [[src]]))
        found = lists.list_of(Route(FLOW, path))
        assert _taken(graph, settings, path[0], found.segments) == list(path)
        lengths.append((len(found.segments), len(path) - 1))
    assert all(segments <= hops for segments, hops in lengths)
    assert sum(segments for segments, _ in lengths) < sum(hops for _, hops in lengths) or name.startswith("leaf")


def test_shortest_path_is_one_segment_and_a_detour_few() -> None:
    lists = SegmentLists(ABILENE, _mpls(ABILENE, metric=Metric.DELAY))
    labels = {name: 16_000 + number for number, name in enumerate(ABILENE.switch)}
    short = lists.list_of(Route(FLOW, ("losa", "snva", "dnvr", "kscy", "ipls", "chin")))
    assert short.segments == (labels["chin"],)
    detour = lists.list_of(Route(FLOW, ("losa", "hstn", "atla", "wash", "nycm", "chin")))
    assert 1 < len(detour.segments) < 5


def test_missing_segments_are_named() -> None:
    settings = SegmentSettings("", srv6=SegmentsOf({"chin": "fd00::1"}), costs={"ipls->chin": 1000})
    found = SegmentLists(ABILENE, settings).list_of(Route(FLOW, ("kscy", "ipls", "chin")))
    assert (found.segments, found.problem) == ((), "no segment srv6.nodes.ipls is given")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "give either srv6 or mpls"),
        ("srv6: {nodes: {}}\nmpls: {nodes: {}}", "give either srv6 or mpls"),
        ("mpls: {nodes: {nowhere: 16}}", r"mpls.nodes.nowhere: there is no such switch in abilene"),
        ("mpls: {nodes: {}, links: {'losa->chin': 16}}", "mpls.links.losa->chin: there is no such link"),
        ("mpls: {nodes: {}}\ncosts: {'h-losa->losa': 16}", "costs.h-losa->losa: there is no such link"),
        ("srv6: {nodes: {losa: fd00}}", "srv6.nodes.losa: 'fd00' is not an IPv6 address"),
        ("mpls: {nodes: {losa: 'fd00::'}}", "mpls.nodes.losa: 'fd00::' is not a label"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(text: str, problem: str) -> None:
    with pytest.raises(ControllerError, match=problem):
        SegmentLists(ABILENE, loads(f"topology: abilene\n{text}", SegmentSettings))
