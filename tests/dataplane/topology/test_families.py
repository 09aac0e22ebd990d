from __future__ import annotations

import networkx as nx
import pytest

from dataplane.errors import ConfigError
from dataplane.topology.families import fat_tree, from_text, leaf_spine, ring
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology


def switch_graph(topology: Topology) -> nx.Graph:
    graph = nx.Graph()
    graph.add_edges_from((link.a.node, link.b.node) for link in topology.links if link.a.node in topology.switch)
    return graph


def test_leaf_spine_is_complete_bipartite() -> None:
    topology = leaf_spine(3, 5, 2)
    assert nx.is_isomorphic(switch_graph(topology), nx.complete_bipartite_graph(3, 5))
    assert len(topology.hosts) == 5 * 2 + 1
    assert [topology.attachment[f"h{number}"].node for number in range(1, 11)] == [
        f"leaf{number}" for number in (1, 1, 2, 2, 3, 3, 4, 4, 5, 5)
    ]
    assert topology.collector is not None
    assert topology.collector.host in topology.host


@pytest.mark.parametrize("k", [2, 4, 6])
def test_fat_tree_has_the_sizes_of_the_paper(k: int) -> None:
    topology = fat_tree(k)
    assert len(topology.switches) == 5 * k * k // 4
    assert len(topology.hosts) == k**3 // 4 + 1
    graph = switch_graph(topology)
    assert graph.number_of_edges() == k**3 // 2
    cores = [name for name in graph if name.startswith("core")]
    assert len(cores) == (k // 2) ** 2
    assert all(graph.degree[core] == k for core in cores)
    # Every core reaches every pod once: that is what makes the tree rearrangeably non-blocking.
    assert all({name[3:].split("-")[0] for name in graph[core]} == {str(pod + 1) for pod in range(k)} for core in cores)
    edges = [name for name in graph if name.startswith("edge")]
    assert all(len(graph[edge]) == k // 2 for edge in edges)


def test_pods_have_k_squared_over_four_shortest_paths() -> None:
    graph = switch_graph(fat_tree(4))
    assert len(list(nx.all_shortest_paths(graph, "edge1-1", "edge3-2"))) == 4


def test_text_names_a_member() -> None:
    assert from_text("leaf-spine:spines=1,leaves=2,hosts=3") == leaf_spine(1, 2, 3)
    assert from_text("fat-tree") == fat_tree()
    assert from_text("fat-tree:k=2,rate=1 Gbit/s,delay=5 us") == fat_tree(2, rate="1 Gbit/s", delay="5 us")
    for text in ("leaf-spine", "fat-tree", "ring"):
        rough = from_text(f"{text}:loss=0.1%,jitter=1us")
        assert {(link.loss_ppb, link.jitter_ns) for link in rough.links} == {(10**6, 1000)}


def test_a_family_with_a_rate_is_no_file() -> None:
    topology = load_topology("leaf-spine:spines=1,leaves=2,hosts=1,rate=1Gbit/s")
    assert topology == leaf_spine(1, 2, 1, rate="1Gbit/s")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("torus:n=2", None),
        ("leaf-spine:spine=2", "spine"),
        ("leaf-spine:spines=two", "spines"),
        ("leaf-spine:spines=-1", "spines"),
        ("leaf-spine:spines=1,spines=2", "spines"),
        ("leaf-spine:spines=0", "spines"),
        ("leaf-spine:leaves=1025", "leaves"),
        ("fat-tree:k=3", "k"),
        ("fat-tree:k", "k"),
        ("fat-tree:rate=fast", "defaults.access.rate"),
        ("ring:loss=lots", "defaults.access.loss"),
        ("leaf-spine:jitter=2us", "defaults.access.jitter"),
        ("leaf-spine:hosts=300,leaves=1", "hosts[253]"),
    ],
)
def test_bad_members_name_the_parameter(text: str, key: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        from_text(text)
    assert caught.value.key == key


def test_a_ring_is_a_circle_with_faster_links_to_its_hosts() -> None:
    topology = ring(5, hosts=2)
    assert nx.is_isomorphic(switch_graph(topology), nx.cycle_graph(5))
    assert len(topology.hosts) == 11
    rates = {link.rate_bps for key, link in topology.directed_links.items() if key.src not in topology.switch}
    assert rates == {40_000_000_000}
    assert from_text("ring:switches=3") == ring(3)
    with pytest.raises(ConfigError, match="2 switches do not make a ring: it needs 3"):
        ring(2)
