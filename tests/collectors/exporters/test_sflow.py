"""sFlow agents complete the state: links' load, loss and delay, flows' paths, drops; and what is not believed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, ip_address
from typing import Any

import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.exporters.settings import DeviceSettings, SflowSettings
from collectors.exporters.sflow import SflowState
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.settings import CollectorSettings, Core
from collectors.values import DelaySource, DropRecord, FlowKey, LinkState, LoadSource, LossSource
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire import sflow
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.packet import udp_frame
from dataplane.wire.sflow import (
    CounterSample,
    Datagram,
    DiscardedPacket,
    InterfaceCounters,
    PacketSample,
    Sample,
    SampledPacket,
)
from tests.collectors.reports import Reporter, build_topology, long_way
from tests.dataplane.wire.golden_sflow import COUNTERS, COUNTERS_OF_3, PACKETS

AGENTS = {name: IPv4Address(f"192.0.2.{number}") for number, name in enumerate(("s1", "s2", "s3"), 1)}
DEVICES = tuple(DeviceSettings(name, str(agent)) for name, agent in AGENTS.items())
SETTINGS = SflowSettings(DEVICES)
FLOW = FlowKey(ip_address("10.0.0.1"), ip_address("10.0.0.2"), 17, 5000, 6001)
FRAME = udp_frame(
    src_mac=1,
    dst_mac=2,
    src=IPv4Address("10.0.0.1"),
    dst=IPv4Address("10.0.0.2"),
    src_port=5000,
    dst_port=6001,
    payload=bytes(1000),
)
IDLE = InterfaceCounters(1, 10**9, True, *([0] * 8))


@dataclass
class Network:
    """A triangle whose switches run agents, and a collector; `counters` are each port's so far."""

    core: Core = Core.NATIVE
    settings: SflowSettings = SETTINGS
    clock: VirtualClock = field(default_factory=VirtualClock)
    drops: list[DropRecord] = field(default_factory=list)
    booted_ns: int = 0

    def __post_init__(self) -> None:
        self.topology = build_topology()
        self.collector = Collector(self.topology, self.clock, CollectorSettings(core=self.core))
        self.collector.subscribe_drops(self.drops.extend)
        sink = self.collector.take_exported_drops
        self.state = SflowState(self.topology, self.settings, self.clock, self.collector.counters, sink)
        self.collector.complete_by(self.state.links, self.state.paths)

    def send(self, switch: str, *samples: Sample, source: str | None = None) -> None:
        """Have a switch's agent send a datagram now."""
        uptime_ms = (self.clock.now_ns() - self.booted_ns) // 1_000_000 % (1 << 32)
        payload = sflow.encode(Datagram(AGENTS[switch], 0, 1, uptime_ms, samples))
        self.state.receive(payload, AGENTS[switch] if source is None else ip_address(source))

    def wait(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_ns() + round(seconds * NS_PER_S))

    def count(self, switch: str, interface: int, **counters: Any) -> None:
        """Have it send an interface's counters."""
        self.send(switch, CounterSample(1, replace(IDLE, interface=interface, **counters)))

    def link(self, src: str, dst: str) -> LinkState:
        return self.collector.snapshot().links[LinkKey(src, dst)]


@pytest.fixture(params=list(Core))
def network(request: pytest.FixtureRequest) -> Network:
    """A network with either core."""
    return Network(request.param)


def test_counters_give_load_and_loss(network: Network) -> None:
    network.count("s1", 2, out_octets=1_000, out_packets=10)
    assert network.link("s1", "s2").load_source is None
    network.wait(20)
    # 250 Mbit/s of 1 Gbit/s; one frame in 10 was discarded, and one in 10 arrived with errors.
    octets = 20 * 250_000_000 // 8
    network.count("s1", 2, out_octets=1_000 + octets, out_packets=10 + 900, out_discards=100)
    network.count("s2", 1, in_errors=4)
    network.wait(20)
    network.count("s2", 1, in_octets=octets, in_packets=900, in_errors=104)
    link = network.link("s1", "s2")
    assert (link.utilisation, link.available_bps, link.load_source) == (0.25, 750_000_000, LoadSource.SFLOW)
    assert (link.loss, link.loss_source, link.lost_packets) == (0.2, LossSource.INTERFACE_COUNTERS, 200)
    assert (link.source, link.age_ns) == (DelaySource.NOMINAL, 20 * NS_PER_S)
    # The other direction was idle, by the same counters.
    assert (network.link("s2", "s1").utilisation, network.link("s2", "s1").load_source) == (0.0, LoadSource.SFLOW)
    assert network.link("s2", "s3").load_source is None


def test_a_host_link_takes_its_load_from_the_switch(network: Network) -> None:
    network.count("s1", 1)
    network.wait(1)
    network.count("s1", 1, in_octets=12_500_000)
    assert network.link("h1", "s1").utilisation == 0.1
    assert network.link("s1", "h1").utilisation == 0.0


def test_old_figures_are_forgotten(network: Network) -> None:
    network.count("s1", 2)
    network.wait(1)
    network.count("s1", 2, out_octets=12_500_000)
    network.wait(90)
    assert network.link("s1", "s2").utilisation == 0.1
    network.wait(1e-9)
    link = network.link("s1", "s2")
    assert (link.utilisation, link.load_source, link.age_ns) == (0.0, None, None)


@pytest.mark.parametrize(("octets", "again"), [(5_000, 1_000), (2**64 - 1_000, 4_000), (0, 10**12)])
def test_counters_that_restart_give_no_rate(octets: int, again: int) -> None:
    network = Network()
    network.count("s1", 2, out_octets=octets)
    network.wait(1)
    network.count("s1", 2, out_octets=again)
    # Counters that wrap do.
    wraps = octets > again and octets > 2**63
    assert (network.link("s1", "s2").load_source is not None) == wraps
    network.wait(1)
    network.count("s1", 2, out_octets=again + 12_500_000)
    assert network.link("s1", "s2").utilisation == 0.1


def test_an_agent_that_restarts_begins_anew() -> None:
    network = Network()
    network.wait(100)
    network.count("s1", 2, out_octets=1_000)
    network.wait(10)
    network.booted_ns = network.clock.now_ns()
    network.count("s1", 2, out_octets=2_000)
    assert network.link("s1", "s2").load_source is None
    assert network.collector.counters[Count.SFLOW_RESTARTS] == 2
    network.wait(10)
    network.count("s1", 2, out_octets=2_000 + 125_000_000)
    assert network.link("s1", "s2").utilisation == 0.1


def test_uptime_may_wrap() -> None:
    network = Network(booted_ns=-(2**32 - 5_000) * 1_000_000)
    for second in range(3):
        network.count("s1", 2, out_octets=second * 10 * 12_500_000)
        network.wait(10)
    assert network.link("s1", "s2").utilisation == 0.1


def test_telemetry_is_preferred(network: Network) -> None:
    network.count("s1", 2)
    network.wait(1)
    network.count("s1", 2, out_octets=12_500_000)
    telemetry = Reporter()
    network.collector.receive(telemetry.stacked(long_way()))
    link = network.link("s1", "s2")
    assert (link.load_source, link.source) == (LoadSource.TELEMETRY, DelaySource.STAMPS)
    network.wait(10)
    # Now that telemetry is silent, the counters are the newest.
    link = network.link("s1", "s2")
    assert (link.load_source, link.source, link.utilisation) == (LoadSource.SFLOW, DelaySource.NOMINAL, 0.1)


def _sampled(inward: int, outward: int, rate: int = 100, **more: int) -> PacketSample:
    return PacketSample(1, rate, inward, outward, SampledPacket(sflow.ETHERNET, len(FRAME) + 4, 4, FRAME[:96]), **more)


def test_samples_of_several_switches_make_a_path(network: Network) -> None:
    for second in range(5):
        network.send("s3", _sampled(1, 2))
        network.send("s1", _sampled(1, 2))
        if second:
            network.send("s2", _sampled(1, 2))
        network.wait(1)
    path = network.collector.snapshot().paths[FLOW]
    assert path.switches == ("s1", "s2", "s3")
    # Four samples after the first, each for 100 packets, in five seconds.
    assert path.rate_bps == 8 * 4 * 100 * len(FRAME) // 5
    assert (path.delay_ns, path.bottleneck_bps) == (4 * 5_000, 1_000_000_000)
    network.wait(91)
    assert FLOW not in network.collector.snapshot().paths


def test_a_flow_that_moves_has_its_new_path() -> None:
    network = Network()
    for switch in ("s1", "s2", "s3"):
        network.send(switch, _sampled(1, 2))
    network.wait(1)
    network.send("s1", _sampled(1, 3))
    network.send("s3", _sampled(3, 2))
    assert network.collector.snapshot().paths[FLOW].switches == ("s1", "s3")


def test_transit_times_give_delays(network: Network) -> None:
    for transit_ns in (10_000, 20_000, 60_000):
        network.send("s1", _sampled(1, 2, transit_ns=transit_ns))
    link = network.link("s1", "s2")
    assert (link.source, link.samples, link.age_ns) == (DelaySource.HOP_LATENCY, 3, 0)
    assert (link.delay_mean_ns, link.delay_p50_ns, link.delay_p99_ns, link.delay_max_ns) == (
        *(35_000, 25_000),
        *(65_000, 65_000),
    )


def test_discarded_packets_are_drops() -> None:
    network = Network()
    packet = SampledPacket(sflow.IPV4, len(FRAME), 0, FRAME[14:80])
    reasons = (259, 257, 258)
    network.send("s2", *(DiscardedPacket(5, 0, 1, 2, reason, packet) for reason in reasons))
    first = network.drops[0]
    assert (first.node_id, first.ingress_port, first.egress_port, first.flow) == (12, 1, 2, FLOW)
    assert [drop.reason for drop in network.drops] == [
        *(DropReason.QUEUE_FULL, DropReason.TTL_EXPIRED),
        DropReason.UNKNOWN,
    ]
    # A full queue is news; the loss follows from the counters.
    assert network.collector.take_signals().queue_full
    assert network.link("s2", "s3").loss is None


@pytest.mark.parametrize(
    ("payload", "source", "count", "problem"),
    [
        (b"", "192.0.2.1", Count.SFLOW_MALFORMED, "datagram from 192.0.2.1: sflow at byte 0: needs 4 bytes, 0 left"),
        (COUNTERS, "127.0.0.1", Count.SFLOW_UNKNOWN, "datagram from 127.0.0.1: no device has the agent 127.0.0.1"),
        (
            sflow.encode(Datagram(AGENTS["s1"], 0, 1, 0, ())),
            "192.0.2.2",
            Count.SFLOW_WRONG_SOURCE,
            "datagram of s1 from 192.0.2.2, not from 192.0.2.1",
        ),
    ],
)
def test_refused_datagrams_are_counted(payload: bytes, source: str, count: Count, problem: str) -> None:
    network = Network()
    network.state.receive(payload, ip_address(source))
    assert network.collector.counters[count] == network.collector.counters[Count.SFLOW_DATAGRAMS] == 1
    assert network.state.last_problem == problem


def test_interfaces_without_a_cable_are_counted() -> None:
    network = Network()
    network.count("s1", 9)
    assert network.collector.counters[Count.SFLOW_NO_LINK] == 1


@pytest.mark.parametrize(
    ("devices", "problem"),
    [
        ([DeviceSettings("s9")], "sflow.devices[0]: there is no switch 's9' in triangle"),
        (
            [DeviceSettings("s1", "10.0.0.9"), DeviceSettings("s2", "10.0.0.9")],
            "sflow.devices[1]: s2 has the agent address 10.0.0.9 of s1",
        ),
    ],
)
def test_wrong_devices_are_refused(devices: Sequence[DeviceSettings], problem: str) -> None:
    with pytest.raises(CollectorError) as caught:
        Network(settings=SflowSettings(tuple(devices)))
    assert str(caught.value) == problem


def test_a_switch_of_another_maker_is_read() -> None:
    device = DeviceSettings("s1", "127.0.0.1", interfaces={3: 1, 5: 2})
    network = Network(settings=SflowSettings((device,)))
    sender = ip_address("127.0.0.1")
    network.state.receive(PACKETS, sender)
    network.wait(3)
    network.state.receive(COUNTERS_OF_3, sender)
    network.wait(1)
    network.state.receive(COUNTERS, sender)
    # Three pings of 1,042 bytes in a second.
    assert network.link("s1", "h1").utilisation == pytest.approx(8 * 3126 / 1e9)
    flows = {(str(flow.src), str(flow.dst)): path for flow, path in network.collector.snapshot().paths.items()}
    assert flows["10.9.0.1", "10.9.0.2"].switches == ("s1",)


def test_the_feed_tells_where_figures_come_from() -> None:
    network = Network()
    network.count("s1", 2)
    network.wait(1)
    network.count("s1", 2, out_octets=12_500_000, out_packets=99, out_discards=1)
    snapshot = network.collector.snapshot()
    assert dict(snapshot_of(snapshot_message(snapshot)).links) == dict(snapshot.links)


def test_flows_are_bounded() -> None:
    network = Network(settings=SflowSettings(DEVICES, max_flows=2))
    for port in (5001, 5002, 5003):
        frame = bytearray(FRAME[:96])
        frame[14 + 20 : 14 + 22] = port.to_bytes(2, "big")
        packet = SampledPacket(sflow.ETHERNET, len(FRAME), 0, bytes(frame))
        network.send("s1", PacketSample(1, 100, 1, 2, packet))
    assert {flow.src_port for flow in network.collector.snapshot().paths} == {5002, 5003}
