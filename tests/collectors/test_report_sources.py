"""A node id counts only from its switch's report source: forged reports change no account, no figure, no record."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Address

import numpy as np
import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.decode.payloads import payloads_of
from collectors.settings import CollectorSettings, Core
from collectors.values import DropRecord, HopRecord
from dataplane.clock import VirtualClock
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import Topology
from dataplane.wire.completion import Completion
from dataplane.wire.drop_reasons import DropReason
from tests.collectors.cores import every_core
from tests.collectors.reports import Reporter, build_topology, long_way

MS = 1_000_000
SINK = switch_ipv4(13)
Sent = tuple[bytes, IPv4Address]
Give = Callable[[Collector, list[Sent]], None]


def one_by_one(collector: Collector, sent: list[Sent]) -> None:
    for payload, address in sent:
        collector.receive(payload, address=address)


def together(collector: Collector, sent: list[Sent]) -> None:
    payloads = payloads_of([payload for payload, _ in sent])
    addresses = np.array([int(address) for _, address in sent], np.uint32)
    collector.receive_many(replace(payloads, addresses=addresses))


every_way = pytest.mark.parametrize("give", [one_by_one, together])


class Bench:
    """A collector that hears of three switches, and those that subscribe to its records."""

    def __init__(
        self, core: Core, give: Give, *, relays: tuple[str, ...] | None = (), topology: Topology | None = None
    ) -> None:
        self.clock = VirtualClock(10_000 * MS)
        settings = CollectorSettings(core=core, relays=relays)
        self.collector = Collector(topology or build_topology(), self.clock, settings)
        self._give = give
        self._genuine = Reporter()
        self.records: list[HopRecord] = []
        self.drops: list[DropRecord] = []

    def subscribe(self) -> None:
        self.collector.subscribe(self.records.extend)
        self.collector.subscribe_drops(self.drops.extend)

    def report(self, count: int, forged: Callable[[int], list[Sent]] | None = None) -> None:
        """Advance time with a genuine report every 10 ms, and a forged one before each."""
        for number in range(count):
            hops = long_way(self.clock.now_ns())
            drop = self._genuine.dropped(hops[2:], DropReason.QUEUE_FULL)
            others = [] if forged is None else forged(self.clock.now_ns())
            self._give(self.collector, [*others, (self._genuine.stacked(hops), SINK)])
            if number % 8 == 0:
                self._give(self.collector, [(drop, SINK)])
            self.clock.advance_to(self.clock.now_ns() + 10 * MS)

    def state(self) -> tuple[object, ...]:
        """Return all that forged reports must not change."""
        snapshot = self.collector.snapshot()
        links, paths = dict(snapshot.links.items()), dict(snapshot.paths.items())
        return links, paths, dict(snapshot.reporters), dict(snapshot.jobs), tuple(self.records), tuple(self.drops)


class Attacker:
    """Sends every kind of report in the name of switches, from where none of theirs comes."""

    def __init__(self, seed: int, sources: tuple[str, ...]) -> None:
        self._random = random.Random(seed)
        self._sources = [IPv4Address(source) for source in sources]
        self._sequences: dict[int, int] = {}
        self.sent = 0

    def __call__(self, now_ns: int) -> list[Sent]:
        rng, reporter = self._random, Reporter("10.0.0.1", sequences=self._sequences)
        for node_id in (11, 12, 13):
            self._sequences[node_id] = rng.randrange(2**22)
        hops = long_way(now_ns + rng.randrange(-3000, 3000) * MS, queue=rng.randrange(100))
        payloads = [
            reporter.stacked(hops),
            *reporter.postcards(hops, mx=True),
            *reporter.postcards(hops, mx=False),
            reporter.dropped([hops[0]], DropReason.QUEUE_FULL),
            reporter.congested(hops[1]),
            reporter.item(12, Completion(3, rng.randrange(99), 1, 5, 0, 0)),
        ]
        damaged = bytearray(payloads[0])
        damaged[rng.randrange(8, len(damaged))] ^= 1 << rng.randrange(8)
        payloads += [bytes(damaged), payloads[0][: rng.randrange(len(payloads[0]))], rng.randbytes(rng.randrange(200))]
        self.sent += len(payloads)
        return [(payload, rng.choice(self._sources)) for payload in payloads]


@every_core
@every_way
@pytest.mark.parametrize("subscribed", [False, True])
def test_what_comes_from_elsewhere_changes_nothing(core: Core, give: Give, *, subscribed: bool) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    attacker = Attacker(1, ("10.0.0.1", "10.0.0.2", "127.0.0.1", "0.0.0.0"))
    for side in (bench, calm):
        if subscribed:
            side.subscribe()
    bench.report(40, attacker)
    calm.report(40)
    assert bench.state() == calm.state()
    counters, truth = dict(bench.collector.status().counters), calm.collector.status().counters
    refused = counters.pop("wrong source") + counters.pop("unknown reporter", 0)
    assert refused == attacker.sent > 400
    assert {**counters, "reports": counters["reports"] - refused} == truth


@every_core
@every_way
def test_a_switch_cannot_speak_in_another_ones_name(core: Core, give: Give) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    bench.report(20, lambda now_ns: [(Reporter().stacked(long_way(now_ns)), switch_ipv4(12))])
    calm.report(20)
    assert bench.state() == calm.state()
    assert bench.collector.status().counters["wrong source"] == 20
    problem = bench.collector.status().last_problem
    assert problem == "report from 10.0.12.254 claims to be from s3, whose reports come from 10.0.13.254"


@every_core
@every_way
def test_node_missing_from_the_topology_has_no_account(core: Core, give: Give) -> None:
    bench, calm = Bench(core, give), Bench(core, give)
    for side in (bench, calm):
        side.subscribe()
    stranger = Reporter()
    bench.report(20, lambda now_ns: [(stranger.item(99, Completion(3, 1, 1, 5, 0, 0)), switch_ipv4(99))])
    calm.report(20)
    assert bench.state() == calm.state()
    assert bench.collector.status().counters["unknown reporter"] == 20
    collector = Bench(core, give).collector
    collector.receive_many(payloads_of([stranger.item(99, Completion(3, 1, 1, 5, 0, 0))]))
    assert collector.status().counters == {"reports": 1, "unknown reporter": 1}, "whoever answers for it"


@every_core
@every_way
def test_subscribers_get_no_record_of_an_unknown_hop_on_a_stack(core: Core, give: Give) -> None:
    bench = Bench(core, give)
    bench.subscribe()
    first, middle, last = long_way(bench.clock.now_ns())
    give(bench.collector, [(Reporter().stacked([first, replace(middle, node_id=77), last]), SINK)])
    assert [record.node_id for record in bench.records] == [11, 13]
    assert bench.collector.status().counters["unknown node"] >= 1


@every_core
@every_way
def test_relays_answer_for_what_they_forward(core: Core, give: Give) -> None:
    report = Reporter().stacked(long_way())
    elsewhere = IPv4Address("192.0.2.1")
    for relays, taken in (((), 0), (("192.0.2.2", "192.0.2.1"), 3), (("192.0.2.2",), 0), (None, 3)):
        collector = Bench(core, give, relays=relays).collector
        give(collector, [(report, elsewhere)])
        assert collector.counters[Count.RECORDS] == taken, relays


@every_core
@every_way
def test_a_relay_and_the_switch_itself_share_an_account(core: Core, give: Give) -> None:
    relay, stranger = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.9")
    reporter = Reporter()
    collector = Bench(core, give, relays=(str(relay),)).collector
    for came in (relay, relay, SINK, relay, SINK, stranger, SINK):
        give(collector, [(reporter.stacked(long_way()), came)])
    account = collector.snapshot().reporters[13, 0]
    assert (account.received, account.lost, account.late) == (6, 1, 0)
    assert collector.counters[Count.WRONG_SOURCE] == 1


@every_core
@every_way
def test_the_topology_may_say_where_a_switchs_reports_come_from(core: Core, give: Give) -> None:
    plain = build_topology()
    switches = tuple(replace(node, report_source=IPv4Address("192.0.2.7")) for node in plain.switches)
    collector = Bench(core, give, topology=replace(plain, switches=switches)).collector
    report = Reporter().stacked(long_way())
    give(collector, [(report, SINK), (report, IPv4Address("192.0.2.7"))])
    assert (collector.counters[Count.RECORDS], collector.counters[Count.WRONG_SOURCE]) == (3, 1)
