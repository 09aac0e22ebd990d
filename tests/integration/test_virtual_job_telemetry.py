"""The collector watches all-reduces in virtual time: it names slow workers, and counts what the reference counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from collectors.collector import Collector
from collectors.decode.payloads import payloads_of
from collectors.events.rules import Rule, RuleSettings
from collectors.events.scopes import Scope
from collectors.events.service import EventService
from collectors.settings import CollectorSettings, Core
from collectors.values import Event, JobKey, JobState, Phase
from controller.network.tables.aggregation import leaves_of
from dataplane.allreduce.formats import BLOCK
from dataplane.allreduce.reference.aggregator import Aggregator, Job
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.pipeline import Frame, Placement
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import Topology
from dataplane.wire import aggregation
from dataplane.wire.packet import decode_udp_frame
from tests.integration.virtual_allreduce import MS, US, Rank, World, ranks

LATE_NS = 300 * US
WINDOW = 8


def with_slow_cable(topology: Topology, host: str) -> Topology:
    """Return a topology in which a host's packets take longer."""
    links = (replace(link, delay_ns=LATE_NS) if host in (link.a.node, link.b.node) else link for link in topology.links)
    return replace(topology, links=tuple(links))


class Watched:
    """A world whose switches report every item of its job, and the collector that hears of them."""

    def __init__(self, topology: Topology, core: Core, hosts: Sequence[str], *, loss: float = 0.0) -> None:
        self.arrived: list[bytes] = []
        arrived = self.arrived

        class Tapped(InterpretedPipeline):
            """Notes what arrives at the switch."""

            def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
                arrived.extend(frame.data for frame in frames)
                return super().ingress(frames, now_us)

        self.world = World(
            topology, pipeline_factory=lambda program, state, rng: Tapped(program, state, rng=rng), report_every=1
        )
        self.collector = Collector(topology, self.world.fabric.clock, CollectorSettings(core=core))
        self.world.fabric.host("collector").on_frame(self._take)
        self.job = self.world.start(hosts, window=WINDOW)
        self.ranks = ranks(self.world, self.job, loss=loss)

    def _take(self, frame: bytes, now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        assert datagram is not None
        self.collector.receive_many(payloads_of([datagram.payload]))

    def reduce(self, blocks: int, duration_ns: int) -> None:
        """Add up this many blocks of each rank's numbers, and let time pass until all have the sums."""
        values = np.random.default_rng(1).normal(size=(len(self.ranks), blocks * BLOCK)).astype(np.float32)
        for rank, mine in zip(self.ranks.values(), values, strict=True):
            rank.reduce(mine, _next_item(rank))
        self.world.run(duration_ns)
        assert all(rank.done_ns for rank in self.ranks.values())

    def state(self, switch: str) -> JobState:
        return self.collector.snapshot().jobs[JobKey(self.job, switch)]

    def counted(self, children: Sequence[str]) -> tuple[Aggregator, Counter[str]]:
        """Return the reference that has taken what arrived, and which child was the last of how many items."""
        numbers: dict[object, int] = {
            self.world.topology.host[name].ipv4: number for number, name in enumerate(children)
        }
        nonce = self.world.jobs.job(self.job).placed.job.nonce
        reference = Aggregator({self.job: Job(epoch=1, children=2 ** len(children) - 1, cells=2 * WINDOW, nonce=nonce)})
        last: Counter[str] = Counter()
        for frame in self.arrived:
            datagram = decode_udp_frame(frame)
            assert datagram is not None
            if datagram.dst_port != aggregation.UDP_PORT:
                continue
            complete = reference.counts.get("complete", 0)
            child = numbers[datagram.ip.src]
            reference.from_child(child, aggregation.decode(datagram.payload))
            last[children[child]] += reference.counts.get("complete", 0) - complete
        return reference, last


def _next_item(rank: Rank) -> int:
    return 0 if rank.worker is None else rank.worker.next_item


@pytest.mark.parametrize("core", list(Core))
def test_retransmissions_and_stragglers_match_the_reference(core: Core) -> None:
    watched = Watched(with_slow_cable(leaf_spine(1, 1, 4), "h3"), core, ["h1", "h2", "h3", "h4"], loss=0.08)
    watched.reduce(12, 40 * MS)
    state = watched.state("leaf1")
    children = [child for child in watched.world.tree(watched.job).children if isinstance(child, str)]
    reference, last = watched.counted(children)
    assert state.repeated == reference.counts["repeated"] > 0
    assert state.reported == state.items == reference.counts["complete"]
    assert {child.key.name: child.last for child in state.children} == +last
    slow = state.children[0]
    assert slow.key.name == "h3"
    assert slow.last_share > 0.5
    assert slow.wait_max_ns is not None
    assert slow.wait_max_ns == pytest.approx(state.wait_max_ns, rel=0.5)
    assert 1 <= state.cells_used <= 2 * WINDOW
    assert not any(reporter.lost for reporter in watched.collector.snapshot().reporters.values())


def test_slow_worker_is_named_in_its_rack_and_the_rack_above() -> None:
    watched = Watched(with_slow_cable(leaf_spine(1, 2, 2), "h4"), Core.NATIVE, ["h1", "h2", "h3", "h4"])
    (first, second), root = leaves_of(watched.world.tree(watched.job)), watched.world.tree(watched.job).root
    watched.reduce(4, 20 * MS)
    assert [watched.state(switch).is_leaf for switch in (first.switch, second.switch, root)] == [True, True, False]
    assert [child.key.name for child in watched.state("leaf2").children] == ["h4"]
    assert [child.key.name for child in watched.state(root).children] == ["leaf2"]
    # Its packets come late, and it goes on late, because results are late to come to it.
    assert LATE_NS <= watched.state("leaf2").wait_p50_ns <= 2.1 * LATE_NS
    assert watched.state("leaf1").wait_max_ns < 10 * US


def test_persistent_straggler_raises_an_event_that_clears() -> None:
    rule = Rule(name="straggler", scope=Scope.CHILD, figure="wait_caused_ns", above=100 * US, hold_ns=10 * MS)
    watched = Watched(with_slow_cable(leaf_spine(1, 1, 3), "h2"), Core.NATIVE, ["h1", "h2", "h3"])
    events = EventService(watched.collector, RuleSettings(rules=(rule,)))
    raised: list[Event] = []
    for _ in range(4):
        watched.reduce(1, 5 * MS)
        raised += events.step()
    (event,) = raised
    assert (str(event.subject), event.phase) == (f"job {watched.job} at leaf1: h2", Phase.RAISED)
    assert LATE_NS <= event.value <= 2.1 * LATE_NS
    assert {"last_share", "wait_mean_ns", "wait_max_ns", "last"} <= {row.figure for row in event.evidence}
    watched.world.run(61_000 * MS)
    (event,) = events.step()
    assert event.phase is Phase.CLEARED, "a job of which nothing is heard has no stragglers"
