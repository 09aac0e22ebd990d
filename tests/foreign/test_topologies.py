"""Topologies of other programs: what is read, what is assumed, and one line for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from dataplane.errors import ConfigError
from dataplane.topology.file import load_topology, loads
from dataplane.topology.importing import Defaults, import_topology
from dataplane.topology.values import GeoLocation, Topology
from tests.reference.geo import propagation_delay_ns

KEYS = """<?xml version="1.0" encoding="utf-8"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key attr.name="LinkSpeedRaw" attr.type="double" for="edge" id="d1"/>
<key attr.name="label" attr.type="string" for="node" id="d2"/>
<key attr.name="Latitude" attr.type="double" for="node" id="d3"/>
<key attr.name="Longitude" attr.type="double" for="node" id="d4"/>
"""
ZOO = (
    KEYS
    + """<graph edgedefault="undirected">
<node id="0"><data key="d2">Zürich</data><data key="d3">47.37</data><data key="d4">8.54</data></node>
<node id="1"><data key="d2">Geneva</data><data key="d3">46.20</data><data key="d4">6.14</data></node>
<node id="2"><data key="d2">Geneva</data></node>
<node id="3"><data key="d2">?</data></node>
<edge source="0" target="1"><data key="d1">2.5e9</data></edge>
<edge source="1" target="2"><data key="d1">0.0</data></edge>
<edge source="2" target="1"/>
<edge source="1" target="1"/>
<edge source="2" target="3"/>
</graph></graphml>"""
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def links(topology: Topology) -> dict[tuple[str, str], tuple[int, int]]:
    """Return rates and delays of links between switches."""
    return {
        (link.a.node, link.b.node): (link.rate_bps, link.delay_ns)
        for link in topology.links
        if link.a.node in topology.switch
    }


def test_graphml_of_the_topology_zoo(tmp_path: Path) -> None:
    imported = import_topology(written(tmp_path, "zoo.graphml", ZOO))
    topology = imported.topology
    assert [switch.name for switch in topology.switches] == ["zurich", "geneva", "geneva-2", "n-3"]
    delay_ns = propagation_delay_ns(GeoLocation(47.37, 8.54), GeoLocation(46.20, 6.14))
    assert links(topology) == {
        ("zurich", "geneva"): (2_500_000_000, delay_ns),
        ("geneva", "geneva-2"): (10_000_000_000, 1_000_000),
        ("geneva-2", "n-3"): (10_000_000_000, 1_000_000),
    }
    assert imported.assumptions == (
        (
            "names of our form: 'Zürich' (id 0) is zurich, 'Geneva' (id 1) is geneva, 'Geneva' (id 2) is geneva-2,"
            " '?' (id 3) is n-3"
        ),
        "links of a node with itself are left out: geneva",
        "parallel links are one, with the figures of the first that states them: geneva - geneva-2",
        "a host at each switch, of 10 Gbit/s and 10 us: 4 hosts",
        "the collector is a host of the first switch: zurich",
        "a delay by the distance, of fibre (ITU-T G.826) with 5 us/km: zurich - geneva",
        "a rate of 10 Gbit/s: geneva - geneva-2, geneva-2 - n-3",
        "a delay of 1 ms: geneva - geneva-2, geneva-2 - n-3",
    )


def test_graphml_group_is_no_node(tmp_path: Path) -> None:
    text = """<graphml><key for="node" id="l" attr.name="label"/><graph><node id="a"/>
<node id="g"><data key="l">Rack</data><graph><node id="g::b"/></graph></node>
<node id="h"><graph/></node><edge source="a" target="g::b"/>
<edge source="a" target="h"/></graph></graphml>"""
    imported = import_topology(written(tmp_path, "groups.graphml", text))
    assert [switch.name for switch in imported.topology.switches] == ["a", "g-b", "h"]
    assert "groups of nodes are no nodes: Rack" in imported.assumptions


@pytest.mark.parametrize("speed", ["fast", "-5", "1e400", "10G"])
def test_speed_that_is_no_rate_is_named(tmp_path: Path, speed: str) -> None:
    imported = import_topology(written(tmp_path, "zoo.graphml", ZOO.replace("2.5e9", speed)))
    assert links(imported.topology)["zurich", "geneva"][0] == 10_000_000_000
    assert f"LinkSpeedRaw is no rate and not used: zurich - geneva ({speed!r})" in imported.assumptions


def test_directions_with_other_figures_are_named(tmp_path: Path) -> None:
    text = (
        KEYS
        + """<graph edgedefault="directed"><node id="a"/><node id="b"/><node id="c"/>
<edge source="a" target="b"><data key="d1">1e9</data></edge><edge source="b" target="a"><data key="d1">2e9</data></edge>
<edge source="b" target="c"/><edge source="c" target="b"/></graph></graphml>"""
    )
    imported = import_topology(written(tmp_path, "directed.graphml", text))
    assert links(imported.topology)["a", "b"][0] == 1_000_000_000
    said = "both directions of a link have the figures of the first that states them: a - b"
    assert said in imported.assumptions


def test_graphml_of_yed_has_labels_in_its_drawing(tmp_path: Path) -> None:
    text = """<graphml xmlns:y="http://www.yworks.com/xml/graphml"><key for="node" id="d6" yfiles.type="nodegraphics"/>
<graph><node id="n0"><data key="d6"><y:ShapeNode><y:Fill color="#F"/> <y:NodeLabel x="1">Seattle<y:LabelModel/>
</y:NodeLabel></y:ShapeNode></data></node><node id="n1"/><edge source="n0" target="n1"/></graph></graphml>"""
    topology = import_topology(written(tmp_path, "yed.graphml", text)).topology
    assert [switch.name for switch in topology.switches] == ["seattle", "n1"]


def test_dot_with_ports_subgraphs_and_hosts(tmp_path: Path) -> None:
    text = """graph G { # a comment amid words is none, but this line is refused
    }"""
    with pytest.raises(ConfigError, match=r"a\.dot:1: '#' is not DOT"):
        import_topology(written(tmp_path, "a.dot", text))
    text = """
# cabling
graph G {
  graph [hostidtype="hostname"]; edge [rate="1 Gbit/s"]
  "spine" [function="spine"]
  "spine":"swp1" -- {leaf1:"swp5"; leaf2} [delay="20 us"];
  subgraph cluster_hosts { node [function=host]; srv1; srv2 }
  leaf1 -- srv1
  leaf2 -- srv2 [bandwidth=10]
}"""
    imported = import_topology(written(tmp_path, "b.gv", text))
    topology = imported.topology
    assert links(topology) == {
        ("spine", "leaf1"): (1_000_000_000, 20_000),
        ("spine", "leaf2"): (1_000_000_000, 20_000),
    }
    assert {host.name: topology.attachment[host.name].node for host in topology.hosts} == {
        "srv1": "leaf1",
        "srv2": "leaf2",
        "collector": "spine",
    }


def test_opposite_edges_of_directed_graphs_are_one_link(tmp_path: Path) -> None:
    path = tmp_path / "both.graphml"
    graph = networkx.DiGraph([("a", "b"), ("b", "a")])
    networkx.write_graphml(graph, path)
    as_json, as_dot = tmp_path / "both.json", tmp_path / "both.dot"
    as_json.write_text(json.dumps(networkx.node_link_data(graph, edges="edges")))
    as_dot.write_text("digraph { a -> b -> a }")
    for file in (path, as_json, as_dot):
        imported = import_topology(file)
        assert list(links(imported.topology)) == [("a", "b")]
        assert not [line for line in imported.assumptions if "parallel" in line]


@pytest.mark.parametrize("kind", ["graphml", "json", "dot"])
def test_files_of_networkx(tmp_path: Path, kind: str) -> None:
    graph = networkx.MultiGraph()
    graph.add_node(1, label="a b")
    graph.add_edge(1, 2, rate="40 Gbit/s", delay="3 us")
    graph.add_edge(1, 2)
    graph.add_edge(2, 3, rate="100 Mbit/s", delay="5 ms")
    path = tmp_path / f"made.{kind}"
    match kind:
        case "graphml":
            networkx.write_graphml(graph, path)
        case "json":
            path.write_text(json.dumps(networkx.node_link_data(graph, edges="links")))
        case _:
            edges = (f'{a} -- {b} [rate="{e.get("rate", "")}", delay="{e.get("delay", "")}"];'
                     for a, b, e in graph.edges(data=True))  # fmt: skip
            path.write_text(f'graph {{ 1 [label="a b"]; {" ".join(edges)} }}')
    topology = import_topology(path, Defaults(rate="1 Gbit/s")).topology
    names = ("2", "3")
    assert links(topology) == {("a-b", names[0]): (40_000_000_000, 3_000), names: (100_000_000, 5_000_000)}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.graphml", "<!DOCTYPE g [<!ENTITY e 'x'>]><g/>", "a.graphml:1: has a document type, whose entities are not"),
        ("a.graphml", ZOO[:-20], "a.graphml:15: is not XML: "),
        ("a.graphml", ZOO.replace('target="3"', 'target="9"'), "a.graphml:15: an edge ends at '9', which is no node"),
        ("a.graphml", ZOO.replace('id="3"', 'id="2"'), "a.graphml:10: node '2' appears twice"),
        ("a.graphml", ZOO.replace("2.5e9", "2.5e39"), "a.graphml: zurich - geneva: "),
        ("a.graphml", "<x/>", "a.graphml:1: there is no graph"),
        ("a.dot", "graph {a b -- }", "a.dot:1: expected a name, got '}'"),
        ("a.dot", "graph {a -- b\n", "a.dot:1: the file ends in the middle"),
        ("a.dot", "graph {a -- b; c -- d}", "a.dot: is not connected: no path from a to c"),
        ("a.dot", "graph {a [type=host]; a -- b -- c -- a}", "a.dot: host a has links to 2 nodes, not to one switch"),
        ("a.dot", "graph {a [type=host]}", "a.dot: all its nodes are hosts"),
        ("a.dot", "graph {}", "a.dot: has no node"),
        ("a.dot", 'graph {a -- b [rate="fast"]}', "a.dot: a - b: "),
        ("a.json", '{"nodes": 3}', "a.json: has no list of `nodes`"),
        ("a.json", '{"nodes": [{"id": 1}, {"id": 1}]}', "a.json: nodes[1]: id '1' is taken"),
        ("a.json", '{"nodes": [{"id": 1}], "links": [{"source": 1}]}', "a.json: links[0]: source and target must be"),
        ("a.txt", "graph {}", "a.txt: its name must end in one of .graphml, .dot, .gv, .json"),
    ],
)
def test_what_cannot_be_imported_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        import_topology(written(tmp_path, name, text))
    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(problem)
    assert "\n" not in str(caught.value)


def test_topology_options_take_foreign_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "zoo.graphml", ZOO)
    assert load_topology("zoo.graphml") == load_topology(str(tmp_path / "zoo.graphml"))
    ours = {"millrace": 1, "name": "one", "switches": [{"name": "s1"}]}
    assert load_topology(str(written(tmp_path, "ours.json", json.dumps(ours)))).name == "one"
    written(tmp_path, "cables.txt", "a -- b")
    with pytest.raises(ConfigError, match=r"cables\.txt: is there, but its name does not end in"):
        load_topology("cables.txt")
    with pytest.raises(ConfigError, match="is neither a file nor one of"):
        load_topology("a\0b")


def test_import_writes_ours_and_lists_assumptions(tmp_path: Path) -> None:
    path = written(tmp_path, "zoo.graphml", ZOO)
    result = CliRunner().invoke(app, ["topology", "import", str(path), "--delay", "7 ms"], catch_exceptions=False)
    assert result.exit_code == 0
    assert loads(result.stdout) == import_topology(path, Defaults(delay="7 ms")).topology
    assert "assumed a delay of 7 ms: geneva - geneva-2, geneva-2 - n-3" in result.stderr
    command = ["topology", "import", str(path), "-o", str(tmp_path / "out.yaml")]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
    assert load_topology(str(tmp_path / "out.yaml")) == load_topology(str(path))
