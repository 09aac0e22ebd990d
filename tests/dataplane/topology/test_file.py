from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.topology.file import dumps, load, loads
from dataplane.topology.values import CollectorAddress, Device, DeviceKind, Endpoint, GeoLocation, LinkKey

SMALL = """\
millrace: 1
name: small
collector: {host: c, udp_port: 6000}
defaults:
  link: {rate: 1 Gbit/s, delay: 2 ms, queue_frames: 64}
  access: {rate: 100 Mbit/s, delay: 3 us}
switches:
  - {name: s1, place: {latitude: 1.5, longitude: -2.5, city: Here}}
  - {name: s2, id: 300}
  - {name: s3}
hosts:
  - {name: a, switch: s1}
  - {name: b, switch: s2, port: 2, mac: '02:00:00:00:00:99', ipv4: 192.168.0.1, ipv6: '2001:db8::1', rate: 10 Mbit/s}
  - {name: c, switch: s2, devices: [{kind: gpu, count: 4, model: X, memory_bytes: 8}]}
links:
  - {a: s1, b: s2, delay: 5.7 ms}
  - {a: s2, b: s3, a_port: 1, rate: 2.5 Gbit/s, queue_frames: 9}
"""


def test_a_file_reads_as_it_stands() -> None:
    topology = loads(SMALL)
    assert {node.name: node.node_id for node in topology.switches} == {"s1": 1, "s2": 300, "s3": 2}
    assert topology.switches[0].place == GeoLocation(1.5, -2.5, "Here")
    assert topology.collector == CollectorAddress("c", 6000)
    assert topology.synchronised_clocks is False
    a, b, c = topology.hosts
    assert (a.ipv4, a.ipv6, a.mac) == (IPv4Address("10.0.1.1"), IPv6Address("fd00:0:0:1::1"), 0x020000010001)
    assert (b.ipv4, b.ipv6, b.mac) == (IPv4Address("192.168.0.1"), IPv6Address("2001:db8::1"), 0x99 | 2 << 40)
    assert (c.ipv4, c.devices) == (IPv4Address("10.1.44.2"), (Device(DeviceKind.GPU, 4, "X", 8),))


def test_ports_go_around_those_that_the_file_numbers() -> None:
    topology = loads(SMALL)
    assert topology.attachment == {"a": Endpoint("s1", 1), "b": Endpoint("s2", 2), "c": Endpoint("s2", 3)}
    assert topology.directed_links[LinkKey("s1", "s2")].head == Endpoint("s2", 4)
    assert topology.directed_links[LinkKey("s2", "s3")].tail == Endpoint("s2", 1)


def test_links_take_what_they_do_not_say_from_the_defaults() -> None:
    links = loads(SMALL).directed_links
    facts = {str(key): (link.rate_bps, link.delay_ns, link.queue_frames) for key, link in links.items()}
    assert facts["s2->s1"] == (1_000_000_000, 5_700_000, 64)
    assert facts["s2->s3"] == (2_500_000_000, 2_000_000, 9)
    assert facts["s1->a"] == (100_000_000, 3_000, 256)
    assert facts["b->s2"] == (10_000_000, 3_000, 256)


def test_losses_and_jitter_are_of_links_and_of_defaults() -> None:
    text = SMALL.replace("delay: 3 us}", "delay: 3 us, loss: 0.1%, jitter: 3us}").replace(
        "9}", "9, loss: 0.5, jitter: 1 ms}"
    )
    topology = loads(text)
    facts = {str(link.key): (link.loss_ppb, link.jitter_ns) for link in topology.directed_links.values()}
    assert facts["a->s1"] == facts["s1->a"] == (10**6, 3_000)
    assert facts["s3->s2"] == (5 * 10**8, 10**6)
    assert facts["s1->s2"] == (0, 0)
    assert loads(dumps(topology)) == topology


def test_text_of_a_topology_reads_back() -> None:
    assert loads(dumps(loads(SMALL))) == loads(SMALL)
    bare = loads("millrace: 1\nname: one\nswitches: [{name: s}]\nsynchronised_clocks: true\n")
    assert loads(dumps(bare)) == bare
    assert bare.synchronised_clocks is True


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        load(tmp_path / "none.yaml")


def test_the_cpu_port_is_never_given_out() -> None:
    hosts = "\n".join(f"  - {{name: h{n}, switch: s, ipv4: 172.16.{n // 250}.{n % 250 + 1}}}" for n in range(253))
    text = f"millrace: 1\nname: many\nswitches: [{{name: s}}, {{name: t}}, {{name: u}}]\nhosts:\n{hosts}\n"
    links = "links: [{a: s, b: t}, {a: s, b: u}]\n"
    topology = loads(text + links)
    assert topology.directed_links[LinkKey("s", "t")].tail.port == 254
    assert topology.directed_links[LinkKey("s", "u")].tail.port == 256


BAD = [
    ("millrace: 1", "millrace: 2", 1, "millrace"),
    ("name: small", "name: Small", 2, "name"),
    ("name: small", "nam: small", 2, "nam"),
    ("{host: c, udp", "{host: d, udp", 3, "collector.host"),
    ("udp_port: 6000", "udp_port: 0", 3, "collector.udp_port"),
    ("rate: 1 Gbit/s", "rate: 1 Gb", 5, "defaults.link.rate"),
    ("delay: 3 us", "delay: 3", 6, "defaults.access.delay"),
    ("delay: 3 us", "delay: -3 us", 6, "defaults.access.delay"),
    ("queue_frames: 64", "queue_frames: 0", 5, "defaults.link.queue_frames"),
    ("latitude: 1.5", "latitude: 91", 8, "switches[0].place.latitude"),
    ("longitude: -2.5", "longitude: .inf", 8, "switches[0].place.longitude"),
    ("name: s3", "name: s1", 10, "switches[2].name"),
    ("name: s3", "name: -s", 10, "switches[2].name"),
    ("name: s3", "name: s3, id: 300", 10, "switches[2].id"),
    ("id: 300", "id: 0", 9, "switches[1].id"),
    ("id: 300", "id: 65536", 9, "switches[1].id"),
    ("{name: a, ", "{name: s1, ", 12, "hosts[0].name"),
    ("name: a, switch: s1", "name: a", 12, "hosts[0]"),
    ("name: a, switch: s1", "name: a, switch: s9", 12, "hosts[0].switch"),
    ("port: 2, mac", "port: 255, mac", 13, "hosts[1].port"),
    ("port: 2, mac", "port: 511, mac", 13, "hosts[1].port"),
    ("a_port: 1", "a_port: 2", 17, "links[1].a_port"),
    ("02:00:00:00:00:99", "02:00:00:01:00:01", 13, "hosts[1].mac"),
    ("02:00:00:00:00:99", "03:00:00:00:00:99", 13, "hosts[1].mac"),
    ("192.168.0.1", "10.0.1.1", 13, "hosts[1].ipv4"),
    ("192.168.0.1", "10.1.44.254", 13, "hosts[1].ipv4"),
    ("192.168.0.1", "224.0.0.1", 13, "hosts[1].ipv4"),
    ("192.168.0.1", "192.168.0.256", 13, "hosts[1].ipv4"),
    ("2001:db8::1", "fe80::1%2", 13, "hosts[1].ipv6"),
    ("2001:db8::1", "2001:db8::1%2", 13, "hosts[1].ipv6"),
    ("2001:db8::1", "fd00:0:0:1::1", 13, "hosts[1].ipv6"),
    ("rate: 10 Mbit/s", "rate: 0 Mbit/s", 13, "hosts[1].rate"),
    ("kind: gpu", "kind: abacus", 14, "hosts[2].devices[0].kind"),
    ("count: 4", "count: 0", 14, "hosts[2].devices[0].count"),
    ("memory_bytes: 8", "memory_bytes: 0", 14, "hosts[2].devices[0].memory_bytes"),
    ("{a: s1, b: s2,", "{a: s1, b: a,", 16, "links[0].b"),
    ("{a: s1, b: s2,", "{a: s1, b: s1,", 16, "links[0]"),
    ("{a: s2, b: s3,", "{a: s2, b: s1,", 17, "links[1]"),
    ("delay: 5.7 ms", "delay: 0.5 ns", 16, "links[0].delay"),
    ("queue_frames: 9", "queue_frames: 9.5", 17, "links[1].queue_frames"),
    ("queue_frames: 9", "loss: 101%", 17, "links[1].loss"),
    ("queue_frames: 9", "loss: -0.5", 17, "links[1].loss"),
    ("queue_frames: 9", "loss: [1]", 17, "links[1].loss"),
    ("queue_frames: 9", "jitter: 1.5", 17, "links[1].jitter"),
    ("queue_frames: 9", "jitter: 2000001 ns", 17, "links[1].jitter"),
    ("delay: 3 us}", "delay: 3 us, jitter: 4us}", 6, "defaults.access.jitter"),
    ("delay: 3 us}", "delay: 3 us, loss: some}", 6, "defaults.access.loss"),
    ("queue_frames: 9", "queue_frame: 9", 17, "links[1].queue_frame"),
    ("  - {a: s2, b: s3, a_port: 1, rate: 2.5 Gbit/s, queue_frames: 9}\n", "", 10, "switches[2]"),
    ("{a: s2, b: s3,", "{a: s2, a: s1, b: s3,", 17, "a"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "key"), BAD, ids=[f"{wrong[:30]}" for _, wrong, _, _ in BAD])
def test_a_wrong_file_is_refused_with_line_and_key(right: str, wrong: str, line: int, key: str) -> None:
    assert SMALL.count(right) == 1
    with pytest.raises(ConfigError) as caught:
        loads(SMALL.replace(right, wrong), file="t.yaml")
    assert (caught.value.file, caught.value.line, caught.value.key) == ("t.yaml", line, key)


NO_TOPOLOGY = ["", "[]", "millrace: 1", "millrace: 1\nname: x\nswitches: []"]
NO_YAML = ["a: [", "\x00", "- &a [*a]", "!!python/x 1", "? {a: b}\n: c"]


@pytest.mark.parametrize("text", NO_TOPOLOGY + NO_YAML)
def test_what_is_no_topology_at_all_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        loads(text)


def test_aliases_that_multiply_are_read_once() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(ConfigError):
        loads("\n".join(lines))


def check(text: str) -> None:
    """Text is refused with a ConfigError, or its topology is valid and round-trips."""
    try:
        topology = loads(text)
    except ConfigError:
        return
    assert loads(dumps(topology)) == topology
    ids = [node.node_id for node in topology.switches]
    addresses = [node.ipv4 for node in topology.hosts]
    assert len(set(ids)) == len(ids)
    assert len(set(addresses)) == len(addresses)
    assert len(topology.link_at) == len(topology.directed_links) == 2 * len(topology.links)
    assert all(link.rate_bps > 0 and link.delay_ns >= 0 and link.queue_frames > 0 for link in topology.links)


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_a_topology_or_a_config_error(text: str) -> None:
    check(text)


@settings(deadline=None)
@given(st.data())
def test_changed_characters_give_a_topology_or_a_config_error(data: st.DataObject) -> None:
    text = SMALL
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 6))
        text = text[:position] + data.draw(st.text("s123abc:{}[],-&*!' \n\t.%é", max_size=4)) + text[position + gone :]
    check(text)


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["s1", "1 bit/s"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)


@settings(deadline=None)
@given(st.data())
def test_changed_values_give_a_topology_or_a_config_error(data: st.DataObject) -> None:
    document: Any = yaml.safe_load(SMALL)
    for _ in range(data.draw(st.integers(1, 3))):
        _change(document, data)
    check(yaml.safe_dump(document))


def _change(node: Any, data: st.DataObject) -> None:
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    if not keys:
        return
    key = data.draw(st.sampled_from(keys))
    if isinstance(node[key], dict | list) and data.draw(st.booleans()):
        _change(node[key], data)
    elif isinstance(node, dict) and data.draw(st.booleans()):
        del node[key]
    else:
        node[key] = data.draw(VALUES)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ("rate: 10 Mbit/s, delay: 500", "links[0].delay: expected text such as 500us"),
        ("rate: 10 Mbit/s, delay: 5.5", "links[0].delay: expected text such as 500us"),
        ("rate: 10, delay: 1 us", "links[0].rate: expected text such as 10 Mbit/s"),
    ],
)
def test_quantity_without_unit_is_refused_with_an_example(wrong: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loads(f"millrace: 1\nname: x\nswitches: [{{name: a}}, {{name: b}}]\nlinks: [{{a: a, b: b, {wrong}}}]\n")
    assert str(refused.value) == f"<text>:4: {problem}"
