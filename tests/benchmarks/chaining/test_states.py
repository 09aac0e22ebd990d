"""Two chains' knowledge of one fabric is the same within tolerances, and what differs is named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from controller.network.intents import FlowSpec, Route, RouteSet
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining.flows import Flows, Mix, make_flows
from tests.benchmarks.chaining.reports import Congestion, Reports
from tests.benchmarks.chaining.states import FRAMES, LOAD, Pair, State, differences, state
from tests.benchmarks.chaining.test_reports import feeding

TOPOLOGY = load_topology("leaf-spine:spines=2,leaves=3,hosts=4")
WINDOW = 50
"""Blocks of 10 ms in the span that links' figures are of."""


@pytest.fixture
def flows() -> Flows:
    return make_flows(TOPOLOGY, 60, Mix.UNIFORM, 1)


def state_with(flows: Flows, seed: int, routes: RouteSet = RouteSet(0, ())) -> State:  # noqa: B008 - frozen
    """Return what a real collector knows over ten windows of reports whose figures are drawn with a seed."""
    reports = Reports(flows, np.random.default_rng(seed), 100)
    collectors = feeding(flows, reports, Congestion.of(flows), 10 * WINDOW)
    snapshots = [collector.snapshot() for block, collector in enumerate(collectors, 1) if block % WINDOW == 0]
    return state(TOPOLOGY, snapshots, routes)


def truth_of(flows: Flows) -> dict[Pair, tuple[str, ...]]:
    return {(flow.src, flow.dst): flow.path for flow in flows.flows}


def test_states_of_the_same_load_do_not_differ(flows: Flows) -> None:
    first = flows.flows[0]
    routes = RouteSet(3, (Route(FlowSpec(first.src, first.dst), first.path),))
    assert differences(state_with(flows, 1, routes), state_with(flows, 2), truth_of(flows)) == []


def test_differences_name_links_and_flows(flows: Flows) -> None:
    calm, truth = state_with(flows, 1), truth_of(flows)
    link, (src, dst) = LinkKey(*flows.flows[0].path[:2]), (flows.flows[0].src, flows.flows[0].dst)
    busy = replace(
        calm.links[link], queue_frames=calm.links[link].queue_frames + 2 * FRAMES, load=2 * LOAD + calm.links[link].load
    )
    elsewhere = {(src, dst): ("leaf1", "spine9", "leaf2")}
    silent = {pair: path for pair, path in calm.paths.items() if pair != (flows.flows[1].src, flows.flows[1].dst)}
    disturbed = State({**calm.links, link: busy}, silent, dict.fromkeys(calm.rates_bps, 0), elsewhere)
    lines = differences(disturbed, calm, truth)
    assert [line.split(" ")[0] for line in lines[:2]] == [f"{link}:", f"{link}:"]
    assert f"disturbed: routed elsewhere: {src}->{dst}" in lines
    assert f"disturbed: not seen: {flows.flows[1].src}->{flows.flows[1].dst}" in lines
    assert lines[-1].startswith("flows send 0 bit/s, and ")
    assert len(lines) == 5
