"""The whole data plane in virtual time: fabric.p4 on every switch of Abilene, entries by the in-process P4Runtime."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import finsy as fy
import networkx as nx
import pytest
from finsy.proto import p4r

from dataplane.fabric.hosts import Arrivals, Receiver, flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.addressing import mac_at, switch_ipv4
from dataplane.topology.file import load_topology
from dataplane.topology.scaling import scaled
from dataplane.topology.values import HostNode, LinkKey, Topology
from dataplane.wire import inner, report
from dataplane.wire.marking import Marking
from dataplane.wire.packet import decode_udp_frame

BUILD = Path(__file__).parents[4] / "p4" / "build"
JSON, P4INFO = BUILD / "fabric.json", BUILD / "fabric.p4info.txtpb"
SECOND = 1_000_000_000
ABILENE = scaled(load_topology("abilene"), 1000)
"""9.92 Mbit/s: a frame of 1,000 bytes needs 825 us."""
WEST_EAST = ("losa", "hstn", "atla", "wash", "nycm")


@cache
def schema() -> fy.P4Schema:
    return fy.P4Schema(P4INFO, JSON)


class Client:
    """The primary controller of one switch, by direct calls."""

    def __init__(self, fabric: VirtualFabric, switch: str) -> None:
        self.core = fabric.p4runtime(switch)
        self.device_id = fabric.switch(switch).device_id
        self.messages: list[p4r.StreamMessageResponse] = []
        self.stream = self.core.open_stream(self.messages.append)
        election = p4r.Uint128(low=1)
        self.stream.handle(
            p4r.StreamMessageRequest(
                arbitration=p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=election)
            )
        )
        self.core.set_pipeline(
            p4r.SetForwardingPipelineConfigRequest(
                device_id=self.device_id,
                election_id=election,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=p4r.ForwardingPipelineConfig(p4info=schema().p4info, p4_device_config=JSON.read_bytes()),
            )
        )

    def insert(self, *entries: fy.P4TableEntry | fy.P4CloneSessionEntry) -> None:
        self._write(p4r.Update.INSERT, entries)

    def modify(self, *entries: fy.P4TableEntry) -> None:
        self._write(p4r.Update.MODIFY, entries)

    def _write(
        self, verb: p4r.Update.Type.ValueType, entries: Sequence[fy.P4TableEntry | fy.P4CloneSessionEntry]
    ) -> None:
        updates = [p4r.Update(type=verb, entity=entry.encode(schema())) for entry in entries]
        self.core.write(p4r.WriteRequest(device_id=self.device_id, election_id=p4r.Uint128(low=1), updates=updates))


def entries_of(topology: Topology, switch: str) -> list[fy.P4TableEntry]:
    """Return a switch's part of least-delay routing, by destination, and its ports' addresses."""
    graph = nx.Graph()
    for link in topology.links:
        graph.add_edge(link.a.node, link.b.node, delay_ns=link.delay_ns)
    port = {end.node: number for number, end in topology.neighbours[switch].items()}
    entries = [
        fy.P4TableEntry(
            "egress_ports",
            match=fy.P4TableMatch({"egress_port": number}),
            action=fy.P4TableAction(
                "set_egress_port",
                src_mac=mac_at(topology, switch, number),
                sink=int(end.node in topology.host),
                mtu_bytes=0,
                strip_at_mtu=0,
            ),
        )
        for number, end in topology.neighbours[switch].items()
    ]
    for host in topology.hosts:
        next_hop = nx.shortest_path(graph, switch, host.name, weight="delay_ns")[1]
        end = topology.neighbours[switch][port[next_hop]]
        forward = fy.P4TableAction("forward", egress_port=port[next_hop], dst_mac=mac_at(topology, end.node, end.port))
        entries.append(
            fy.P4TableEntry(
                "ipv4_destination_paths", match=fy.P4TableMatch({"dst_addr": f"{host.ipv4}/32"}), action=forward
            )
        )
    return entries


def start(seed: int = 0) -> VirtualFabric:
    fabric = VirtualFabric(ABILENE, seed=seed, record_hops=True)
    for node in ABILENE.switches:
        Client(fabric, node.name).insert(*entries_of(ABILENE, node.name))
    return fabric


@pytest.fixture(scope="module")
def fabric() -> VirtualFabric:
    return start()


def path_delay_ns(frame_bytes: int, *nodes: str) -> int:
    """Return the delay of an idle path: each link serialises the whole frame and then carries it."""
    links = [ABILENE.directed_links[LinkKey(a, b)] for a, b in pairwise(nodes)]
    return sum((frame_bytes + 24) * 8 * SECOND // link.rate_bps + link.delay_ns for link in links)


def test_a_flow_crosses_in_exactly_its_time(fabric: VirtualFabric) -> None:
    receiver, frames = Receiver(), list[bytes]()
    fabric.host("h-nycm").on_frame(receiver.receive)
    fabric.host("h-nycm").on_frame(lambda frame, _: frames.append(frame))
    flow = flow_between(ABILENE, 1, "h-losa", "h-nycm", 1_000_000, stop_ns=SECOND // 10)
    sender = fabric.start_flow("h-losa", flow)
    fabric.run_until(SECOND)
    seen = receiver.measure(1, 0, SECOND)
    expected_ns = path_delay_ns(1000, "h-losa", *WEST_EAST, "h-nycm")
    assert (seen.packets, seen.lost, sender.sent_frames) == (13, 0, 13)
    assert (seen.delay_p50_ns, seen.delay_max_ns) == (expected_ns, expected_ns)
    assert fabric.hops is not None
    assert [hop.switch for hop in fabric.hops.of_packet(1, 0)] == list(WEST_EAST)
    assert all(hop.residence_ns == 0 for hop in fabric.hops.of_packet(1, 0))


def test_the_frame_that_arrives_was_routed(fabric: VirtualFabric) -> None:
    frames: list[bytes] = []
    fabric.host("h-wash").on_frame(lambda frame, _: frames.append(frame))
    flow = flow_between(ABILENE, 2, "h-atlam5", "h-wash", 1_000_000, start_ns=fabric.now_ns, stop_ns=fabric.now_ns + 1)
    fabric.start_flow("h-atlam5", flow)
    fabric.run_until(fabric.now_ns + SECOND)
    datagram = decode_udp_frame(frames[0])
    assert len(frames) == 1
    assert datagram is not None
    assert datagram.checksum_ok
    assert datagram.ethernet.dst == ABILENE.host["h-wash"].mac
    assert datagram.ethernet.src == mac_at(ABILENE, "wash", 1)


def run_digest(seed: int) -> str:
    fabric = start(seed)
    ends = [("sttl", "wash"), ("losa", "nycm"), ("snva", "atla")]
    for number, (src, dst) in enumerate(ends):
        flow = flow_between(ABILENE, number, f"h-{src}", f"h-{dst}", 4_000_000, arrivals=Arrivals.POISSON)
        fabric.start_flow(f"h-{src}", flow)
    fabric.run_until(SECOND // 10)
    assert fabric.hops is not None
    assert len(fabric.hops.hops) > 100
    return hashlib.sha256(repr(fabric.hops.hops).encode()).hexdigest()


def test_the_same_seed_gives_the_same_run() -> None:
    first = run_digest(7)
    assert run_digest(7) == first
    assert run_digest(8) != first


def test_packet_out_leaves_at_once_and_packet_in_comes_back() -> None:
    fabric = VirtualFabric(ABILENE)
    client = Client(fabric, "nycm")
    frames: list[tuple[bytes, int]] = []
    fabric.host("h-nycm").on_frame(lambda frame, now_ns: frames.append((frame, now_ns)))
    packet = p4r.PacketOut(
        payload=bytes(60),
        metadata=[p4r.PacketMetadata(metadata_id=1, value=b"\x01"), p4r.PacketMetadata(metadata_id=2, value=b"\x00")],
    )
    fabric.run_until(5000)
    client.stream.handle(p4r.StreamMessageRequest(packet=packet))
    fabric.run_until(SECOND)
    assert frames == [(bytes(60), 5000 + path_delay_ns(60, "nycm", "h-nycm"))]
    client.insert(
        fy.P4TableEntry("punt", match=fy.P4TableMatch({"ether_type": 0x88B5}), action=fy.P4TableAction("send_to_cpu"))
    )
    fabric.host("h-nycm").send(bytes(12) + b"\x88\xb5" + bytes(46))
    fabric.run_until(2 * SECOND)
    assert [message.packet.payload for message in client.messages[1:]] == [bytes(12) + b"\x88\xb5" + bytes(46)]


def own_addresses(host: HostNode) -> dict[str, int]:
    return {"addr": int(host.ipv4), "mask": 2**32 - 1, "ipv6_addr": int(host.ipv6 or 0), "ipv6_mask": 2**128 - 1}


def add_telemetry(client: Client, topology: Topology, switch: str) -> None:
    """Make a switch source, transit and sink of INT for every UDP packet, with reports to the collector."""
    assert topology.collector is not None
    node_id = topology.switch[switch].node_id
    collector = topology.host[topology.collector.host]
    routes = [entry for entry in entries_of(topology, switch) if entry.table_id == "ipv4_destination_paths"]
    (action,) = (e.action for e in routes if e.match == fy.P4TableMatch({"dst_addr": f"{collector.ipv4}/32"}))
    assert isinstance(action, fy.P4TableAction)
    port = int(action.args["egress_port"])
    client.insert(
        fy.P4CloneSessionEntry(250, replicas=(port,)),
        fy.P4TableEntry(
            "ipv4_watchlist",
            match=fy.P4TableMatch({"protocol": 17}),
            priority=1,
            action=fy.P4TableAction(
                "watch",
                watch_id=1,
                sample_every=1,
                instructions=0xFC00,
                max_hops=8,
                mode=0,
                domain_instructions=0,
                discard=0,
            ),
        ),
        *(
            fy.P4TableEntry(
                "port_roles",
                match=fy.P4TableMatch({"ingress_port": number}),
                action=fy.P4TableAction("set_source_port", **own_addresses(topology.host[end.node])),
            )
            for number, end in topology.neighbours[switch].items()
            if end.node in topology.host
        ),
    )
    target = {"src_addr": int(switch_ipv4(node_id)), "dst_addr": int(collector.ipv4), "udp_port": 32766}
    addresses = {"src_mac": mac_at(topology, switch, port), "dst_mac": action.args["dst_mac"]}
    client.modify(
        fy.P4TableEntry("node", is_default_action=True, action=fy.P4TableAction("set_node", node_id=node_id)),
        fy.P4TableEntry(
            "report_target", is_default_action=True, action=fy.P4TableAction("set_report_target", **target, **addresses)
        ),
    )


def reported_hops(frame: bytes) -> list[tuple[int, int | None, int | None, int | None]]:
    """Return (node, ingress time, egress time, hop latency) of every hop in a sink's reports."""
    datagram = decode_udp_frame(frame)
    assert datagram is not None
    packet = report.decode(datagram.payload)
    (individual,) = packet.reports
    assert individual.main is not None
    hops = [(packet.group.node_id, individual.main.metadata)]
    hops += [(hop.node_id or 0, hop) for hop in inner.decode_ipv4(individual.inner, Marking()).hops]
    return [(node, hop.ingress_timestamp, hop.egress_timestamp, hop.hop_latency) for node, hop in hops]


def test_telemetry_tells_the_truth_to_the_microsecond() -> None:
    fabric = VirtualFabric(ABILENE, record_hops=True)
    for node in ABILENE.switches:
        client = Client(fabric, node.name)
        client.insert(*entries_of(ABILENE, node.name))
        add_telemetry(client, ABILENE, node.name)
    reports: list[bytes] = []
    fabric.host("collector").on_frame(lambda frame, _: reports.append(frame))
    receiver = Receiver()
    fabric.host("h-nycm").on_frame(receiver.receive)
    flow = flow_between(ABILENE, 1, "h-losa", "h-nycm", 9_900_000, stop_ns=SECOND // 20, frame_bytes=500)
    sender = fabric.start_flow("h-losa", flow)
    fabric.run_until(SECOND)
    assert receiver.received_frames(1) == sender.sent_frames == len(reports)
    assert receiver.measure(1, 0, SECOND).lost == receiver.corrupt == 0
    assert fabric.hops is not None
    truth = {(ABILENE.switch[hop.switch].node_id, hop.arrived_ns // 1000): hop for hop in fabric.hops.hops}
    assert len(truth) == len(fabric.hops.hops) == 5 * sender.sent_frames
    waited = 0
    for node_id, ingress_ns, egress_ns, latency_ns in (hop for frame in reports for hop in reported_hops(frame)):
        assert ingress_ns is not None
        hop = truth.pop((node_id, ingress_ns // 1000))
        assert egress_ns == hop.started_ns // 1000 * 1000
        assert latency_ns is not None
        assert abs(latency_ns - hop.residence_ns) < 1000
        waited = max(waited, hop.residence_ns)
    assert not truth
    assert waited > 5_000_000  # INT makes frames longer than the link's budget: there was a queue to measure
