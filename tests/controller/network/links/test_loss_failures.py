"""Links dead by loss: one datagram of forged drops moves no flow, real loss does, a round later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collectors.collector import Collector
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.settings import CollectorSettings, Core
from collectors.state.link_states import LinkStates
from collectors.values import DelaySource, LinkState, Snapshot
from controller.network.links.loss_failures import LossFailureDetector
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings, ManagedFlow
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey
from dataplane.wire import report
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.report import Report
from tests.collectors.cores import every_core, receive_together
from tests.collectors.reports import Reporter, build_topology, short_way

MS = 1_000_000
LINK = LinkKey("s1", "s3")
HEALTHY = LinkState(LINK, 10**9, 5000, 5000, 5000, 0.0, 0.0, 10**9, 0.0, 0, 12, DelaySource.STAMPS, lost_packets=7)


def confirmed_loss(state: LinkState, at_ms: int, detector: LossFailureDetector) -> float | None:
    """Return the loss that the decider sees in a round."""
    return detector.confirmed(Snapshot(at_ms * MS, {LINK: state}, {}, {})).links[LINK].loss


def lossy(lost: int, samples: int = 12) -> LinkState:
    return replace(HEALTHY, loss=0.95, lost_packets=7 + lost, samples=samples)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([lossy(280)] * 4, [None] * 4),  # one report, visible while the window contains it
        ([lossy(280), lossy(560)], [None, 0.95]),
        ([lossy(280), lossy(280), lossy(390)], [None, None, 0.95]),
        ([lossy(280), lossy(281)], [None, None]),  # another drop, with twelve packets that arrived
        ([lossy(280), lossy(281), lossy(388)], [None, None, 0.95]),
        ([lossy(280, samples=0), lossy(560, samples=0)], [None, None]),  # unmeasured
        ([lossy(280, samples=9), lossy(560, samples=9)], [None, None]),  # too few measurements
        ([lossy(280, samples=10), lossy(560, samples=10)], [None, 0.95]),
        ([lossy(280), HEALTHY, lossy(560)], [None, 0.0, None]),
        ([lossy(280), lossy(560), lossy(560), HEALTHY, lossy(560)], [None, 0.95, 0.95, 0.0, None]),
        ([lossy(280), lossy(-7), lossy(160)], [None, None, 0.95]),  # another collector starts counting at zero
    ],
)
def test_link_dies_by_losses_in_a_second_round(rounds: list[LinkState], expected: list[float | None]) -> None:
    detector = LossFailureDetector(0.9)
    assert [confirmed_loss(state, 100 * number, detector) for number, state in enumerate(rounds)] == expected
    detector, losses = LossFailureDetector(0.9), []
    for number, state in enumerate(rounds):
        arrived = snapshot_of(snapshot_message(Snapshot(100 * number * MS, {LINK: state}, {}, {})))
        assert isinstance(arrived.links, LinkStates)
        losses.append(detector.confirmed(arrived).links[LINK].loss)
    assert losses == expected, "as columns, as the feed brings them"


def test_the_same_snapshot_again_is_no_second_round() -> None:
    detector = LossFailureDetector(0.9)
    without_counts = replace(lossy(80), lost_packets=None)
    assert confirmed_loss(without_counts, 0, detector) is None
    assert confirmed_loss(without_counts, 0, detector) is None
    assert confirmed_loss(without_counts, 100, detector) == 0.95


class World:
    """A collector that receives reports, and a path server's core with twenty flows over s1 and s3."""

    def __init__(self, core: Core) -> None:
        self.clock = VirtualClock(1000 * MS)
        topology = build_topology()
        self.collector = Collector(topology, self.clock, CollectorSettings(core=core))
        flows = tuple(ManagedFlow(src="h1", dst="h2", protocol=17, dst_port=port) for port in range(6001, 6021))
        self.paths = PathServerCore(topology, DecideSettings(), flows=flows)
        self.reporter = Reporter()

    def rounds(self, count: int, drops: list[bytes] | None = None) -> int:
        """Run rounds with measured packets and drops, if any, on the link; return the moves."""
        for _ in range(count):
            now_ns = self.clock.now_ns()
            measured = [self.reporter.stacked(short_way(now_ns + number)) for number in range(3)]
            receive_together(self.collector, [*measured, *(drops or [])])
            self.paths.step(self.collector.snapshot(), now_ns)
            self.clock.advance_to(now_ns + 100 * MS)
        return len(self.paths.decisions)

    def datagram(self, drops: int) -> bytes:
        """Return one report packet with this many drops on the link from s1 to s3, in the name of s1."""
        hop = replace(short_way(self.clock.now_ns())[0], ingress_port=1, egress_port=3)
        dropped = report.decode(self.reporter.dropped([hop], DropReason.QUEUE_FULL))
        many: tuple[Report, ...] = dropped.reports * drops
        return replace(dropped, reports=many).encode()


@every_core
def test_one_datagram_of_forged_drops_moves_no_flow(core: Core) -> None:
    world = World(core)
    assert world.rounds(5) == 0
    receive_together(world.collector, [world.datagram(300)])
    state, counters = world.collector.snapshot().links[LINK], world.collector.status().counters
    assert (state.lost_packets, counters["packet dropped"], counters["drops capped"]) == (32, 300, 268)
    assert world.rounds(15) == 0


@every_core
def test_forged_drop_datagrams_in_two_rounds_move_no_flow(core: Core) -> None:
    world = World(core)
    world.rounds(5)
    for _ in range(2):
        assert world.rounds(1, [world.datagram(300)]) == 0
    assert world.rounds(15) == 0


@every_core
def test_forged_drops_with_few_measured_packets_move_no_flow(core: Core) -> None:
    """A link with nine measured packets per window."""
    world = World(core)
    world.rounds(5)
    world.clock.advance_to(world.clock.now_ns() + 400 * MS)
    for _ in range(3):
        assert world.rounds(1, [world.datagram(32) for _ in range(9)]) == 0
        world.clock.advance_to(world.clock.now_ns() + 150 * MS)


@every_core
def test_repeated_loss_moves_all_flows_to_their_backups(core: Core) -> None:
    world = World(core)
    world.rounds(5)
    assert world.rounds(1, [world.datagram(32) for _ in range(5)]) == 0
    assert world.rounds(2, [world.datagram(32) for _ in range(5)]) == 20
    assert "link s1->s3 of s1-s3 is dead" in world.paths.decisions[0].reason


def test_native_and_plain_cap_any_datagram_alike() -> None:
    """Drops between stacks, and groups of drops in a row: each report packet counts separately."""
    worlds = [World(core) for core in (Core.REFERENCE, Core.NATIVE)]
    for world in worlds:
        stacked = report.decode(world.reporter.stacked(short_way(world.clock.now_ns())))
        many = report.decode(world.datagram(40))
        mixed = replace(many, reports=(*many.reports[:20], *stacked.reports, *many.reports[20:]))
        receive_together(world.collector, [many.encode(), mixed.encode(), world.datagram(31), world.datagram(33)])
    plain, native = (world.collector for world in worlds)
    assert native.status().counters == plain.status().counters
    assert native.counters["drops capped"] == 8 + 8 + 1
    assert native.snapshot().links[LINK] == plain.snapshot().links[LINK]
