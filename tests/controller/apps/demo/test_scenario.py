"""Planning of the demo: the congested link and its senders, on networks of every shape."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from controller.apps.demo.prepare import prepare, sampled
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from controller.apps.demo.settings import DemoSettings
from controller.apps.demo.surge import base_load_bps, base_paths_taken
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.errors import FabricError

SETTINGS = ScenarioSettings()


@cache
def planned(name: str) -> Scenario:
    """Return the scenario of a bundled topology."""
    return prepare(name, None, SETTINGS).scenario


@pytest.mark.parametrize(
    "name", ["abilene", "geant", "leaf-spine", "fat-tree-4", "leaf-spine:spines=4,leaves=3,hosts=3"]
)
def test_the_surge_overloads_its_link_and_no_hosts_link(name: str) -> None:
    scenario = planned(name)
    topology = scenario.topology
    surges = [flow for flow in scenario.flows if flow.surge]
    demands = {(f.flow.src_host, f.flow.dst_host): f.rate_bps for f in scenario.flows if not f.surge}
    rate_bps = topology.directed_links[scenario.congested].rate_bps
    total_bps = base_load_bps(topology, demands)[scenario.congested] + sum(flow.rate_bps for flow in surges)
    assert total_bps == pytest.approx(SETTINGS.overload * rate_bps, rel=0.1)
    for host, edge in topology.attachment.items():
        sent = sum(f.rate_bps for f in scenario.flows if f.flow.src_host == host)
        assert sent <= next(link.rate_bps for link in topology.directed_links.values() if link.tail == edge)
    assert len({flow.number for flow in scenario.flows}) == len(scenario.flows)
    assert {flow.flow_id: flow.dst_port for flow in scenario.packet_flows()} == {
        flow.number: 20000 + flow.number for flow in scenario.flows
    }


@pytest.mark.parametrize("name", ["leaf-spine", "fat-tree-4"])
def test_the_programs_own_hash_puts_the_surge_on_the_link(name: str) -> None:
    scenario = planned(name)
    surges = {flow.number: flow for flow in scenario.flows if flow.surge}
    assert len(surges) > 1
    edges = {scenario.topology.attachment[flow.flow.dst_host].node for flow in surges.values()}
    assert len(edges) == len(surges)  # the surge fills no link after its own
    flows = [(surges[f.flow_id].flow.src_host, f) for f in scenario.packet_flows() if f.flow_id in surges]
    for path in base_paths_taken(scenario.topology, flows).values():
        assert (scenario.congested.src, scenario.congested.dst) in pairwise(path)


@pytest.mark.parametrize("name", ["leaf-spine:spines=1,leaves=3", "fat-tree:k=2"])
def test_a_tree_has_no_way_around(name: str) -> None:
    with pytest.raises(FabricError, match="no link has hosts that can fill it and a way around it"):
        planned(name)


def test_reports_do_not_fill_the_links_to_the_collector() -> None:
    settings = DemoSettings()
    assert sampled(settings, planned("abilene")).watch.sample_every == 3
    assert sampled(settings, planned("fat-tree-4")).watch.sample_every > 2
    rare = DemoSettings(watch=Watch(sample_every=1))
    assert sampled(rare, planned("fat-tree-4")) == rare
