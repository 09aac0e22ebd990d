"""Topology files of containerlab: kinds, endpoints, bridges, variables of links, and refusals by key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.topology.file import load_topology
from dataplane.topology.importing import import_topology

LAB = """\
name: lab
mgmt: {network: custom}
topology:
  defaults: {kind: nokia_srlinux}
  kinds: {nokia_srlinux: {image: "ghcr.io/nokia/srlinux"}}
  groups: {clients: {kind: linux}}
  nodes:
    srl1:
    srl2: {kind: arista_ceos, labels: {graph-geoCoordinateLat: 47.37, graph-geoCoordinateLng: "8.54"}}
    br1: {kind: bridge}
    c1: {group: clients, image: "alpine:3"}
    frr: {kind: linux, image: "frrouting/frr"}
  links:
    - endpoints: ["srl1:e1-1", "srl2:eth1"]
      mtu: 1500
      vars: {delay: 5 ms, rate: 1 Gbit/s, loss: 0.1%, ospf_area: 0}
    - endpoints: ["srl2:eth2", "br1:eth1"]
    - {type: veth, endpoints: [{node: c1, interface: eth1}, {node: br1, interface: eth7}]}
    - endpoints: ["frr:eth1", "srl1:e1-2"]
    - endpoints: ["frr:eth2", "br1:eth3"]
    - endpoints: ["srl1:e1-9", "host:srl1-e9"]
    - {type: mgmt-net, endpoint: {node: srl2, interface: eth9}, host-interface: up}
"""


def test_containerlab_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lab.clab.yml"
    path.write_text(LAB)
    imported = import_topology(path)
    topology = imported.topology
    assert (topology.name, [switch.name for switch in topology.switches]) == ("lab", ["srl1", "srl2", "br1", "frr"])
    assert {host.name: topology.attachment[host.name].node for host in topology.hosts} == {
        "c1": "br1",
        "collector": "srl1",
    }
    link = next(link for link in topology.links if (link.a.node, link.b.node) == ("srl1", "srl2"))
    assert (link.rate_bps, link.delay_ns, link.loss_ppb) == (1_000_000_000, 5_000_000, 1_000_000)
    place = topology.switch["srl2"].place
    assert place is not None
    assert (place.latitude, place.longitude) == (47.37, 8.54)
    assert imported.assumptions == (
        "a rate of 10 Gbit/s: c1 - br1, srl2 - br1, frr - srl1, frr - br1",
        "a delay of 1 ms: c1 - br1, srl2 - br1, frr - srl1, frr - br1",
        "the collector is a host of the first switch: srl1",
        "links with the lab's machine are left out: srl1, srl2",
        "nodes of kind linux with one neighbour are hosts: c1",
        "other nodes of kind linux are switches: frr",
    )
    other = tmp_path / "other.yaml"  # known by its content
    other.write_text(LAB)
    with caplog.at_level(logging.WARNING, "millrace.topology"):
        assert load_topology(str(other)).links == topology.links
        load_topology(str(other))
    assert caplog.messages == [f"{other}: assumed {line}" for line in imported.assumptions]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kind: nokia_srlinux}", "image: x}", "8: topology.nodes.srl1: has no kind, and there is no default kind"),
        ("kind: bridge", "kind: $KIND", "10: topology.nodes.br1.kind: '$KIND' has a variable, which is not read"),
        ("srl1:e1-1", "srl9:e1-1", "14: topology.links[0].endpoints[0]: there is no node 'srl9'"),
        ("srl1:e1-1", "srl1", "14: topology.links[0].endpoints[0]: 'srl1' is not an endpoint such as 'a:eth1'"),
        (', "br1:eth1"]', "]", "17: topology.links[1].endpoints: a link has two endpoints, not 1"),
        ("type: veth", "type: tunnel", "18: topology.links[2].type: links of type 'tunnel' are not read"),
        ("rate: 1 Gbit/s", "rate: fast", " srl1 - srl2: 'fast' is not a rate"),
        ('["srl2:eth2", "br1:eth1"]', "3", "17: topology.links[1].endpoints: expected `array | null`, got `int`"),
    ],
)
def test_containerlab_file_that_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    path = tmp_path / "x.clab.yml"
    assert old in LAB
    path.write_text(LAB.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        load_topology(str(path))
    assert str(caught.value).startswith(f"{path}:{problem}")
