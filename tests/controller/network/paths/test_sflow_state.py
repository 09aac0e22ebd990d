"""The path server over a network that only sFlow agents report: it moves a flow off a full link."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

from collectors.collector import Collector
from collectors.exporters.settings import DeviceSettings, SflowSettings
from collectors.exporters.sflow import SflowState
from collectors.values import LoadSource
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.topology.values import Endpoint, HostNode, Link, LinkKey, Topology
from dataplane.wire import sflow
from dataplane.wire.packet import udp_frame
from dataplane.wire.sflow import CounterSample, Datagram, InterfaceCounters, PacketSample, Sample, SampledPacket
from tests.collectors.reports import build_topology

AGENTS = {f"s{number}": IPv4Address(f"192.0.2.{number}") for number in (1, 2, 3)}
SETTINGS = SflowSettings(tuple(DeviceSettings(name, str(agent)) for name, agent in AGENTS.items()))
HOSTS = (1, 3)
RATE_BPS = 600_000_000
SAMPLING = 1_000


def _fabric() -> Topology:
    """A triangle with two hosts at s1 and one at s3, which have ten times the rate of its switches."""
    topology = build_topology()
    more = Link(Endpoint("h3", 0), Endpoint("s1", 4), rate_bps=10**10, delay_ns=5_000, queue_frames=100)
    return replace(
        topology,
        hosts=(*topology.hosts, HostNode("h3", 0x020000000003, IPv4Address("10.0.0.3"))),
        links=(
            *(
                replace(link, rate_bps=10**10) if {link.a.node, link.b.node} & topology.host.keys() else link
                for link in topology.links
            ),
            more,
        ),
    )


def _sample(host: int, inward: int, outward: int) -> PacketSample:
    frame = udp_frame(
        src_mac=1,
        dst_mac=2,
        src=IPv4Address(f"10.0.0.{host}"),
        dst=IPv4Address("10.0.0.2"),
        src_port=5000,
        dst_port=6001,
        payload=bytes(1458),
    )
    return PacketSample(1, SAMPLING, inward, outward, SampledPacket(sflow.ETHERNET, len(frame), 0, frame[:96]))


def test_a_flow_leaves_a_full_link() -> None:
    topology, clock = _fabric(), VirtualClock()
    collector = Collector(topology, clock)
    state = SflowState(topology, SETTINGS, clock, collector.counters, collector.take_exported_drops)
    collector.complete_by(state.links, state.paths)
    core = PathServerCore(topology, DecideSettings(stale_after_ns=90 * NS_PER_S))
    octets, result = 0, None
    for second in range(20):
        clock.advance_to(second * NS_PER_S)
        # Of packets of 1,500 bytes, one in 1,000: 50 samples of each flow a second.
        samples = [
            _sample(host, 4 if host == 3 else 1, 3) for host in HOSTS for _ in range(RATE_BPS // 8 // 1_500 // SAMPLING)
        ]
        counters = InterfaceCounters(3, 10**9, True, 0, 0, 0, 0, octets, octets // 1_500, octets // 15_000, 0)
        octets += 125_000_000
        said: dict[str, list[Sample]] = {
            "s1": [*samples, CounterSample(1, counters)],
            "s3": [_sample(host, 3, 2) for host in HOSTS],
        }
        for switch, about in said.items():
            datagram = Datagram(AGENTS[switch], 0, 1, 1_000 * second, tuple(about))
            state.receive(sflow.encode(datagram), AGENTS[switch])
        result = core.step(collector.snapshot(), clock.now_ns())
        if result is not None:
            break
    assert result is not None
    (moved,) = result.moves
    assert (moved.old_path, moved.new_path) == (("s1", "s3"), ("s1", "s2", "s3"))
    assert collector.snapshot().links[LinkKey("s1", "s3")].load_source is LoadSource.SFLOW
