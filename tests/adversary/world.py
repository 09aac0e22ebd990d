"""A fabric in virtual time in which everything goes on that can be attacked, and a host that attacks it.

Real switches run the real program, a real controller fills them; the collector, the path server's core, a producer with
its database and workers that add up are what runs in production, without sockets.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from ipaddress import IPv4Address

import numpy as np

from collectors.collector import Collector
from collectors.decode.sources import ELSEWHERE
from collectors.reference.builder import PlainStateBuilder
from collectors.settings import CollectorSettings
from collectors.values import HopRecord
from controller.network.aggregation.settings import AggregationSettings
from controller.network.content.settings import StoreSettings
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from controller.network.tables.entities import EntityKey, Update, Verb
from controller.network.tables.telemetry.int_watch import Watch
from controller.network.virtual import HELLOS, VirtualController, WriteDelays
from dataplane.allreduce.formats import BLOCK
from dataplane.errors import WireError
from dataplane.fabric.hosts import Receiver, flow_between
from dataplane.store.dialogues import Content, reading, writing
from dataplane.switch.gnmi import GnmiCore
from dataplane.topology import file as topology_file
from dataplane.topology.values import LinkKey
from dataplane.wire.packet import decode_udp_frame
from tests.adversary.attacks import Attacker, Datagram, Kind, Target, frame_of
from tests.adversary.tables import differences, steady
from tests.integration import virtual_allreduce, virtual_store
from tests.integration.virtual_allreduce import Rank, ranks

MS = 1_000_000
TOPOLOGY = topology_file.loads("""
millrace: 1
name: besieged
collector: {host: hc}
synchronised_clocks: true
defaults:
  link: {rate: 1 Gbit/s, delay: 20 us, queue_frames: 400}
  access: {rate: 1 Gbit/s, delay: 5 us, queue_frames: 400}
switches: [{name: a}, {name: b}, {name: c}]
hosts:
  - {name: evil, switch: a}
  - {name: reader, switch: a}
  - {name: w1, switch: a}
  - {name: w2, switch: b}
  - {name: producer, switch: b}
  - {name: w3, switch: c}
  - {name: hc, switch: c}
links: [{a: a, b: b}, {a: b, b: c}, {a: a, b: c}]
""")
NAME = "/weights"
FLOWS = (("w1", "w2"), ("w2", "w3"), ("reader", "producer"))
_TURNS = 8

Tables = dict[str, dict[EntityKey, object]]


@dataclass
class Outcome:
    """Results of a whole run that an attack must not change."""

    moves: int = 0
    rebalances: int = 0
    sums: list[bytes] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    """Entries that came, went or changed meanwhile."""
    reads: list[Content] = field(default_factory=list)
    records: Counter[object] = field(default_factory=Counter)
    """Number of records of genuine flows, by flow, switch and reporter."""
    known: set[object] = field(default_factory=set)
    """Flows, reporters, links and clocks that the collector has figures of."""
    late: int = 0
    repeated: int = 0
    down: frozenset[LinkKey] = frozenset()
    sent: dict[int, int] = field(default_factory=dict)
    received: dict[int, int] = field(default_factory=dict)
    writes: int = 0
    """Number of values written by the producer."""


class _Fabric(virtual_store.World):
    """A fabric whose switches measure, add up and hold content."""

    def _control(self) -> VirtualController:
        return VirtualController(
            self.topology,
            self.sessions,
            self.fabric.clock,
            self.fabric.call_at,
            watches=(Watch(),),
            delays=WriteDelays(write_delay_ns=0),
            aggregation=AggregationSettings(report_every=1),
            store=self.settings,
            ports={node.name: GnmiCore(self.fabric.switch(node.name)) for node in self.topology.switches},
            hellos=HELLOS,
        )


class _Sums(virtual_allreduce.World):
    """The same fabric, as workers see it."""

    def __init__(self, world: _Fabric) -> None:
        self.topology, self.fabric, self.controller = world.topology, world.fabric, world.controller
        self._state = PlainStateBuilder(world.topology, world.fabric.clock)


class World:
    """One run; `play` returns its outcome, with a number of forged datagrams or none."""

    def __init__(self, seed: int = 1) -> None:
        self.forged = Counter[Kind]()
        self.store = _Fabric(TOPOLOGY, StoreSettings(producers=("producer",), interval_ns=15 * MS), seed=seed)
        self.sums, self.fabric = _Sums(self.store), self.store.fabric
        self.collector = Collector(TOPOLOGY, self.fabric.clock, CollectorSettings())
        self.paths = PathServerCore(TOPOLOGY, DecideSettings(min_gain=0.25))
        self.outcome, self._seed = Outcome(), seed
        self._hosts = [host.ipv4 for host in TOPOLOGY.hosts if host.name != "evil"]
        self._receivers = {dst: Receiver() for _, dst in FLOWS}
        for host, receiver in self._receivers.items():
            self.fabric.host(host).on_frame(receiver.receive)
        self.fabric.host("hc").on_frame(self._report)
        self.collector.subscribe(self._note)

    def play(self, forged: int, duration_ns: int = 240 * MS) -> Outcome:
        """Run everything for a while, with this many forged datagrams arriving meanwhile."""
        fabric, start_ns = self.fabric, self.fabric.now_ns
        senders = [
            fabric.start_flow(src, flow_between(TOPOLOGY, number, src, dst, 1_000_000, frame_bytes=500))
            for number, (src, dst) in enumerate(FLOWS)
        ]
        job = self.sums.start(["w1", "w2", "w3"], window=8)
        working = ranks(self.sums, job)
        with closing(virtual_store.Server(self.store, "producer")) as server:
            client = virtual_store.Client(self.store, "reader", "producer")
            client.talk(writing(NAME, b"value 0"))
            self._wait_for_copy(client, server)
            before = self._tables()
            target = Target(TOPOLOGY, "evil", "producer", "reader", "w1", working["w1"].port, job, NAME)
            attacker = Attacker(target, lambda: fabric.now_ns, self._seed)
            for turn in range(1, _TURNS + 1):
                attacker.item = turn * 100
                self._attack(attacker, forged // _TURNS, duration_ns // _TURNS)
                self._add_up(working, turn)
                self.outcome.reads += [self._read(client) for _ in range(10)]
                client.talk(writing(NAME, b"value %d" % turn))
                self.outcome.reads += [self._read(client) for _ in range(10)]
                self.store.run(max(0, start_ns + turn * duration_ns // _TURNS - fabric.now_ns))
                self._decide()
            self.outcome.writes = server.producer_core.counters["written"]
        for sender in senders:
            sender.flow = replace(sender.flow, stop_ns=fabric.now_ns)
        self.store.run(20 * MS)
        self.outcome.sent = {sender.flow.flow_id: sender.sent_frames for sender in senders}
        return self._end(before)

    def open_edge(self) -> None:
        """Have the attacker's port pass for a cable to a switch, where nothing is filtered, as no controller would."""
        edge = TOPOLOGY.attachment["evil"]
        session = self.store.sessions[edge.node]
        roles = [
            Update(Verb.DELETE, key, entity)
            for key, entity in session.read().items()
            if key.table == "port_roles" and dict(key.match)["ingress_port"] == edge.port
        ]
        session.write(tuple(roles))

    def _add_up(self, working: dict[str, Rank], turn: int) -> None:
        values = np.random.default_rng(turn).normal(size=(len(working), 4 * BLOCK)).astype(np.float32)
        for index, (rank, mine) in enumerate(zip(working.values(), values, strict=True)):
            # One waits for the other: forged frames have time to arrive first.
            self.fabric.call_after(1 + index * 4 * MS, partial(rank.reduce, mine, turn * 100))
        self.store.run(9 * MS)
        for _ in range(50):
            if all(rank.done_ns for rank in working.values()):
                break
            self.store.run(1 * MS)
        for rank in working.values():
            assert rank.worker is not None
            assert rank.worker.is_done, f"{rank.host} has no sum"
            self.outcome.sums.append(rank.worker.result.tobytes())

    def _read(self, client: virtual_store.Client) -> Content:
        content = client.talk(reading(NAME))
        assert isinstance(content, Content)
        return content

    def _tables(self) -> Tables:
        return {name: steady(session.read(), NAME) for name, session in self.store.sessions.items()}

    def _wait_for_copy(self, client: virtual_store.Client, server: virtual_store.Server) -> None:
        """Read until the switch answers: forged frames target its copy."""
        for _ in range(500):
            before = server.interests
            self._read(client)
            if server.interests == before:
                return
            self.store.run(1 * MS)
        raise AssertionError("no copy in the switch")

    def _attack(self, attacker: Attacker, forged: int, duration_ns: int) -> None:
        for number, datagram in enumerate(attacker.datagrams(forged)):
            self.fabric.call_after(1 + number * duration_ns // forged, partial(self._send, attacker, datagram))

    def _send(self, attacker: Attacker, datagram: Datagram) -> None:
        if self.fabric.host("evil").send((datagram.frame or frame_of(attacker.target, datagram))[:1514]):
            self.forged[datagram.kind] += 1

    # what runs

    def _report(self, frame: bytes, _now_ns: int) -> None:
        try:
            datagram = decode_udp_frame(frame)
        except WireError:
            return  # no socket gets it
        if datagram is not None and datagram.checksum_ok and datagram.dst_port == self.collector.report_udp_port:
            src = datagram.ip.src
            # Of IPv6 a socket of both says no IPv4 address; the switch's in IPv6 Linux itself refuses.
            self.collector.receive(
                datagram.payload, address=src if isinstance(src, IPv4Address) else IPv4Address(ELSEWHERE)
            )

    def _note(self, records: tuple[HopRecord, ...]) -> None:
        for record in records:
            if record.flow.src in self._hosts:
                self.outcome.records[record.flow, record.node_id, record.reporter_id] += 1

    def _decide(self) -> None:
        result = self.paths.step(self.collector.snapshot(), self.fabric.now_ns)
        if result is not None:
            self.outcome.moves += len(result.moves)
            self.outcome.rebalances += len(result.rebalances)
            self.store.controller.submit(result.routes)

    def _end(self, before: Tables) -> Outcome:
        outcome, snapshot = self.outcome, self.collector.snapshot()
        counters = self.collector.status().counters
        outcome.late, outcome.repeated = counters.get("late samples", 0), counters.get("repeated", 0)
        genuine = (flow for flow in snapshot.paths if flow.src != TOPOLOGY.host["evil"].ipv4)
        outcome.known = {*genuine, *snapshot.reporters, *snapshot.clocks, *snapshot.links, *snapshot.jobs}
        after = self._tables()
        outcome.tables = [
            f"{switch}: {difference}" for switch in after for difference in differences(before[switch], after[switch])
        ]
        outcome.down = frozenset(link for link, status in snapshot.statuses.items() if status.age_ns)
        outcome.received = {
            number: self._receivers[dst].received_frames(number) for number, (_, dst) in enumerate(FLOWS)
        }
        return outcome
