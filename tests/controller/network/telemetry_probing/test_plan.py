"""Plans of probes: few pairs cover every link of base paths in both directions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from controller.network.base_paths import base_paths, next_hops
from controller.network.telemetry_probing.plan import plan_probes
from dataplane.topology.file import load_topology, loads
from dataplane.topology.values import LinkKey, Topology

BYPASS = """
millrace: 1
name: bypass
switches: [{name: s1}, {name: s2}, {name: s3}]
hosts: [{name: h1, switch: s1}, {name: h1b, switch: s1}, {name: h2, switch: s2}]
defaults: {access: {rate: 1 Gbit/s, delay: 1 us}, link: {rate: 1 Gbit/s, delay: 1 ms}}
links: [{a: s1, b: s2}, {a: s1, b: s3}, {a: s3, b: s2}]
"""


def crossed(topology: Topology, src: str, dst: str) -> set[LinkKey]:
    ends = topology.attachment[src].node, topology.attachment[dst].node
    paths = base_paths(next_hops(topology), *ends)
    return {LinkKey(tail, head) for path in paths for tail, head in pairwise(path)}


@pytest.mark.parametrize("name", ["abilene", "leaf-spine", "fat-tree-4"])
def test_probe_pairs_cross_every_link_on_a_base_path(name: str) -> None:
    topology = load_topology(name)
    plan = plan_probes(topology)
    links = {key for key in topology.directed_links if key.src in topology.switch and key.dst in topology.switch}
    covered = set().union(*(crossed(topology, *pair) for pair in plan.pairs))
    assert covered == links - set(plan.uncovered)
    hosts = list(topology.host)
    assert not any(
        link in crossed(topology, src, dst) for link in plan.uncovered for src in hosts for dst in hosts if src != dst
    )
    # Each pair covers at least one direction of one link, in these fabrics many more.
    assert len(plan.pairs) < len(links) / 2


def test_links_off_the_base_paths_are_reported() -> None:
    plan = plan_probes(loads(BYPASS))
    assert set(plan.pairs) == {("h1", "h2"), ("h2", "h1")}
    assert {str(link) for link in plan.uncovered} == {"s1->s3", "s3->s1", "s2->s3", "s3->s2"}


def test_a_fabric_without_pairs_has_an_empty_plan() -> None:
    assert plan_probes(loads("millrace: 1\nname: one\nswitches: [{name: s}]\n")).pairs == ()
