"""The bundled topologies: published facts, correctly stated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest

from dataplane.errors import ConfigError
from dataplane.topology import file as topology_file
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.file import bundled_topologies, dumps, load_topology, loads, topologies_folder
from dataplane.topology.values import DeviceKind, LinkKey, Topology
from tests.reference.geo import propagation_delay_ns

SHARED = Path(__file__).parents[4] / "shared" / "data"


def backbone(topology: Topology) -> nx.Graph:
    graph = nx.Graph()
    for link in topology.links:
        if link.a.node in topology.switch:
            graph.add_edge(link.a.node, link.b.node, rate_bps=link.rate_bps)
    return graph


def test_names() -> None:
    assert set(bundled_topologies()) == {"abilene", "geant", "leaf-spine", "fat-tree-4"}


@pytest.mark.parametrize("name", sorted(bundled_topologies()))
def test_every_one_loads_has_a_collector_and_survives_its_text(name: str) -> None:
    topology = load_topology(name)
    assert topology.collector is not None
    assert loads(dumps(topology)) == topology
    assert load_topology(bundled_topologies()[name]) == topology


@pytest.mark.parametrize("name", ["abilene", "geant"])
def test_delays_follow_from_the_places(name: str) -> None:
    topology = load_topology(name)
    for link in topology.links:
        if link.a.node in topology.switch:
            a, b = topology.switch[link.a.node].place, topology.switch[link.b.node].place
            assert a is not None
            assert b is not None
            assert link.delay_ns == propagation_delay_ns(a, b), (link.a.node, link.b.node)


def test_the_family_examples_are_what_the_families_make() -> None:
    assert without_hardware(load_topology("leaf-spine")) == leaf_spine()
    assert without_hardware(load_topology("fat-tree-4")) == fat_tree(4)


def without_hardware(topology: Topology) -> Topology:
    bare = (dataclasses.replace(host, cores=None, memory=(), devices=()) for host in topology.hosts)
    return dataclasses.replace(topology, hosts=tuple(bare))


@pytest.mark.parametrize("name", ["leaf-spine", "fat-tree-4"])
def test_hosts_of_the_family_examples_have_hardware(name: str) -> None:
    hosts = [host for host in load_topology(name).hosts if host.name != "collector"]
    assert all(host.cores and host.memory and host.devices for host in hosts)
    assert {device.kind for host in hosts for device in host.devices} == {
        *(DeviceKind.CPU, DeviceKind.GPU, DeviceKind.DPU, DeviceKind.FPGA),
    }


def test_geant_has_its_published_size() -> None:
    graph = backbone(load_topology("geant"))
    rates = sorted(rate_bps for _, _, rate_bps in graph.edges(data="rate_bps"))
    assert graph.number_of_nodes() == 23
    assert graph.number_of_edges() == 37
    assert {rate: rates.count(rate) for rate in set(rates)} == {155_000_000: 4, 2_500_000_000: 14, 10_000_000_000: 19}


def test_abilene_has_its_published_size() -> None:
    topology = load_topology("abilene")
    graph = backbone(topology)
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (12, 15)
    assert graph.edges["atlam5", "atla"]["rate_bps"] == 2_480_000_000
    assert [node.node_id for node in topology.switches] == list(range(1, 13))


def test_abilene_is_the_topology_zoo_s() -> None:
    path = SHARED / "Abilene.graphml"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ElementTree.parse(path).getroot()
    label = {node.get("id"): _label(node) for node in root.iter(f"{space}node")}
    theirs = {frozenset((label[edge.get("source")], label[edge.get("target")])) for edge in root.iter(f"{space}edge")}
    topology = load_topology("abilene")
    city = {node.name: node.place.city for node in topology.switches if node.place}
    ours = {frozenset((city[a], city[b])) for a, b in backbone(topology).edges if "atlam5" not in (a, b)}
    assert {frozenset(name.removesuffix(" DC") for name in pair) for pair in theirs} == ours


def _label(node: ElementTree.Element) -> str:
    label = node.find(".//{http://www.yworks.com/xml/graphml}NodeLabel")
    assert label is not None
    return (label.text or "").strip()


def test_abilene_has_the_links_and_ids_of_the_matrices() -> None:
    path = SHARED / "yates_abilene.dot"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    pairs = (line.split("[")[0].split("->") for line in path.read_text().splitlines() if "->" in line)
    theirs = {frozenset((int(a.strip()[1:]), int(b.strip()[1:]))) for a, b in pairs if "h" not in a + b}
    topology = load_topology("abilene")
    number = {name: node.node_id for name, node in topology.switch.items()}
    assert {frozenset((number[a], number[b])) for a, b in backbone(topology).edges} == theirs


def test_what_is_no_topology_is_refused_with_the_names_that_are() -> None:
    with pytest.raises(ConfigError, match="abilene, fat-tree-4, geant, leaf-spine, leaf-spine:"):
        load_topology("internet2")
    with pytest.raises(ConfigError, match=r"no/such\.yaml"):
        load_topology("no/such.yaml")


def test_the_example_of_the_readme_is_a_topology() -> None:
    text = (topologies_folder() / "README.md").read_text()
    topology = loads(text.split("```yaml\n")[1].split("```")[0])
    assert (len(topology.switches), len(topology.hosts), len(topology.links)) == (2, 2, 3)
    assert topology.directed_links[LinkKey("s1", "s2")].delay_ns == 5_700_000


def test_an_installed_wheel_brings_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.yaml").write_text("millrace: 1\nname: tiny\nswitches: [{name: s}]\n")
    monkeypatch.setattr(topology_file, "_INSTALLED", tmp_path)
    assert load_topology("tiny").name == "tiny"
    assert set(bundled_topologies()) == {"tiny"}
