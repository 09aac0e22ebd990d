"""Trees: the root in the middle, racks at their own switches, away from busy links and full switches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from controller.common.errors import ControllerError
from controller.network.aggregation.placement import place
from controller.network.base_paths import next_hops
from controller.network.intents import AggregationTree, Leaf
from controller.network.tables.aggregation import Block
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey, Topology
from tests.controller.network.aggregation.states import nominal

ABILENE = Path(__file__).parents[4] / "topologies" / "abilene.yaml"


def placed(
    topology: Topology, hosts: list[str], taken: dict[str, list[Block]] | None = None, **utilisation: float
) -> AggregationTree:
    state = nominal(topology, **utilisation)
    return place(topology, next_hops(topology), state, hosts, cells=64, taken=taken or {})


def test_workers_of_one_rack_are_added_up_there() -> None:
    assert placed(leaf_spine(), ["h3", "h4"]) == AggregationTree("leaf2", ("h3", "h4"))


def test_racks_become_leaves_and_a_lone_worker_a_direct_child() -> None:
    tree = placed(leaf_spine(hosts=4), ["h1", "h2", "h5", "h6", "h9"], spine1=0.5)
    assert tree == AggregationTree("spine2", (Leaf("leaf1", ("h1", "h2")), Leaf("leaf2", ("h5", "h6")), "h9"))


def test_busy_or_full_spine_is_avoided() -> None:
    hosts = [f"h{number}" for number in range(1, 9)]
    assert placed(leaf_spine(), hosts).root == "spine1"
    assert placed(leaf_spine(), hosts, spine1=0.3).root == "spine2"
    assert placed(leaf_spine(), hosts, {"spine1": [Block(0, 64)]}).root == "spine2"


def test_a_full_rack_switch_has_its_workers_contribute_directly() -> None:
    tree = placed(leaf_spine(), ["h1", "h2", "h3", "h4", "h5", "h6"], {"leaf1": [Block(0, 8192)]}, spine2=0.5)
    assert tree.children == ("h1", "h2", Leaf("leaf2", ("h3", "h4")), Leaf("leaf3", ("h5", "h6")))


def test_fat_tree_job_roots_in_its_pod_or_at_the_core() -> None:
    topology = fat_tree(4)
    assert placed(topology, ["h1", "h2", "h3", "h4"]).root in {"agg1-1", "agg1-2", "edge1-1", "edge1-2"}
    across = [f"h{number}" for number in range(1, 17)]
    tree = placed(topology, across)
    assert tree.root.startswith("core")
    assert len(tree.children) == 8


def test_abilene_root_minimises_total_path_length() -> None:
    topology = load_topology(ABILENE)
    hosts = [host.name for host in topology.hosts if topology.collector is None or host.name != topology.collector.host]
    tree = placed(topology, hosts)
    state = nominal(topology)
    busy = {key: replace(link, utilisation=0.9) for key, link in state.links.items() if tree.root in (key.src, key.dst)}
    moved = place(
        topology, next_hops(topology), replace(state, links={**state.links, **busy}), hosts, cells=64, taken={}
    )
    assert tree.root in {"kscy", "ipls"}
    assert moved.root != tree.root


def test_banned_full_and_too_wide_switches_are_refused() -> None:
    topology = leaf_spine(2, 2, 2)
    hops, state = next_hops(topology), nominal(topology)
    tree = place(topology, hops, state, ["h1", "h2", "h3"], cells=64, taken={}, banned=("leaf1", "spine1"))
    assert tree.root != "leaf1"
    with pytest.raises(
        ControllerError,
        match="can be a root: "
        + ", ".join(f"{name} is unreachable" for name in ("spine1", "spine2", "leaf1", "leaf2")),
    ):
        place(topology, hops, state, ["h1", "h2"], cells=64, taken={}, banned=tuple(topology.switch))
    taken = {switch: [Block(0, 8192)] for switch in topology.switch}
    with pytest.raises(
        ControllerError, match=r"spine1 has no 64 contiguous cells free \(8192 of 8192 are in use\), spine2"
    ):
        place(topology, hops, state, ["h1", "h2"], cells=64, taken=taken)
    wide = leaf_spine(4, 1, 65)
    with pytest.raises(
        ControllerError, match=r"spine1 has more than 64 children, or does not reach all of 65 workers, .*, and 1 more"
    ):
        placed(wide, [f"h{number + 1}" for number in range(65)])


def test_a_host_that_is_not_there_is_named() -> None:
    with pytest.raises(ControllerError, match="there is no host 'h99'"):
        placed(leaf_spine(), ["h99"])


def test_every_link_counts_both_ways() -> None:
    topology = leaf_spine()
    state = nominal(topology)
    down = LinkKey("spine1", "leaf3")
    links = {**state.links, down: replace(state.links[down], delay_mean_ns=5_000)}
    hosts = [f"h{number}" for number in range(1, 9)]
    tree = place(topology, next_hops(topology), replace(state, links=links), hosts, cells=64, taken={})
    assert tree.root == "spine2"
