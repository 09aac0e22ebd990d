"""The demo's whole circle in virtual time: packets, reports, state, decision, writes, packets on another path."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from collectors.values import HopRecord
from controller.apps.demo.live import LiveView
from controller.apps.demo.outcome import Outcome, mean_delay_ns
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import ScenarioSettings
from controller.apps.demo.settings import DemoSettings, LoopDelays
from controller.apps.demo.virtual import VirtualRun, run_unsteered
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.graph import PathFigures
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.settings import DecideSettings, Mode
from controller.network.reconcile import diff
from controller.network.tables.entities import Entities
from controller.network.tables.flow_paths import flow_path_entities
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.clock import NS_PER_S
from dataplane.topology.file import topologies_folder
from tests.controller.network.base_tables import base_entities

MS = 1_000_000
NO_MOVES = DecideSettings(min_gain=1.0, min_gain_ns=NS_PER_S)
FORK = """
millrace: 1
name: fork
collector: {host: hc}
synchronised_clocks: true
defaults:
  link: {rate: 2 Mbit/s, queue_frames: 64}
  access: {rate: 20 Mbit/s, delay: 10 us, queue_frames: 64}
switches: [{name: a}, {name: b}, {name: d}, {name: x}, {name: y}]
hosts:
  - {name: ha, switch: a}
  - {name: hb, switch: b}
  - {name: hd, switch: d}
  - {name: hc, switch: a}
links:
  - {a: a, b: b, delay: 2 ms}
  - {a: b, b: d, delay: 2 ms}
  - {a: a, b: x, delay: 4 ms, rate: 800 kbit/s}
  - {a: x, b: d, delay: 4 ms, rate: 800 kbit/s}
  - {a: a, b: y, delay: 13 ms}
  - {a: y, b: d, delay: 13 ms}
"""
FORK_DEMANDS = """
bit/s,ha,hb,hd
ha,0,0,400000
hb,0,0,200000
hd,100000,50000,0
"""
SHORT = ScenarioSettings(rate_divisor=1, warm_up_s=0.3, before_s=0.9, during_s=1.8, after_s=1.2)
STACKED = DemoSettings(
    scenario=SHORT,
    watch=Watch(sample_every=3, instructions=(0, 1, 2, 3, 4, 5, 7)),
    decide=DecideSettings(confirm_rounds=3, min_gain=0.25),
    decision_interval_ns=200 * MS,
)
AROUND = {
    Mode.LEAST_DELAY: ("a", "x", "d"),
    Mode.MOST_BANDWIDTH: ("a", "y", "d"),
    Mode.BOTH: ("a", "y", "d"),
}
"""Path of the flow from ha to hd when b->d is full: by x with less delay, by y with more bandwidth. The path by x is
narrower than half of the widest, so mode both does not take it."""


@dataclass
class Run:
    """A run, its results, and its fabric with all tables."""

    virtual: VirtualRun
    outcome: Outcome
    decisions: tuple[Decision, ...]
    records: tuple[HopRecord, ...]


def run(
    topology: str,
    demands: Path,
    settings: DemoSettings,
    seed: int = 1,
    prelude: Callable[[VirtualRun], None] | None = None,
    *,
    deciding: bool = True,
) -> Run:
    """Run the demo in virtual time, unwatched; `prelude` may schedule further events."""
    prepared = prepare(topology, demands, settings.scenario)
    database = open_path_database(":memory:")
    try:
        recorder = Recorder(database, max_records=100_000)
        view = LiveView(prepared.scenario.topology, Console(file=io.StringIO()))
        virtual = VirtualRun(prepared.scenario, settings, view, recorder, seed, deciding)
        if prelude is not None:
            prelude(virtual)
        outcome = virtual.run()
        records = tuple(recorder.in_time(0, prepared.scenario.end_ns, limit=100_000))
    finally:
        database.close()
    return Run(virtual, outcome, tuple(virtual.paths.decisions), records)


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return a runner of the scenario on the fork: three ways from a to d, the shortest one congested."""
    folder = tmp_path_factory.mktemp("fork")
    topology, demands = folder / "fork.yaml", folder / "demands.csv"
    topology.write_text(FORK, encoding="utf-8")
    demands.write_text(FORK_DEMANDS.lstrip(), encoding="utf-8")

    def run_fork(
        settings: DemoSettings,
        seed: int = 1,
        prelude: Callable[[VirtualRun], None] | None = None,
        *,
        deciding: bool = True,
    ) -> Run:
        return run(str(topology), demands, settings, seed, prelude, deciding=deciding)

    return run_fork


@pytest.fixture(scope="module")
def stacked(fork: Callable[..., Run]) -> Run:
    """Return the plain run: stacked INT-MD, least delay."""
    return fork(STACKED)


@pytest.fixture(scope="module")
def stuck(fork: Callable[..., Run]) -> Run:
    """Return the plain run's twin in which nothing moves: the same packets, and what the surge does to them."""
    return fork(STACKED, deciding=False)


def read_tables(virtual: VirtualRun, switch: str) -> Entities:
    """Read a switch back by P4Runtime, in process, as any further client would."""
    node = virtual.scenario.topology.switch[switch]
    schema = load_schema(*fabric_program())
    session = InProcessSession(switch, node.node_id, virtual.fabric.p4runtime(switch), schema)
    try:
        return session.read()
    finally:
        session.close()


def assert_tables_as_wanted(virtual: VirtualRun, routes: RouteSet) -> None:
    """Compare every switch with what topology, watch rule and routes imply."""
    topology = virtual.scenario.topology
    base = base_entities(topology, (virtual.settings.watch,))
    paths = flow_path_entities(topology, routes)
    for node in topology.switches:
        wanted = {**base[node.name], **paths.get(node.name, {})}
        held = read_tables(virtual, node.name)
        assert diff(wanted, held) == [], node.name
        assert held.keys() == wanted.keys(), node.name


def assert_circle_closed(done: Run, stuck: Run) -> None:
    """Check that flows left the congested link and are faster for it, and that telemetry and tables are right."""
    outcome = done.outcome
    link = (outcome.scenario.congested.src, outcome.scenario.congested.dst)
    assert outcome.moves
    assert min(move.time_ns for move in outcome.moves) > outcome.scenario.congest_ns
    left = {move.flow for move in outcome.moves if link in pairwise(move.old) and link not in pairwise(move.new)}
    assert left
    moved = [flow for flow in outcome.figures() if flow.flow in left and not flow.surge]
    left_alone = [flow for flow in stuck.outcome.figures() if flow.flow in left and not flow.surge]
    congested, after = (mean_delay_ns(flow.phases[2] for flow in flows) for flows in (left_alone, moved))
    assert congested is not None
    assert after is not None
    assert after < 0.7 * congested
    for flow in moved:
        # A link may still be full of others at the end, but nothing comes twice, and nothing overtakes.
        assert (flow.phases[2].late, flow.phases[2].duplicates) == (0, 0), flow.flow
    assert outcome.reports > 100
    assert outcome.lost_reports == 0
    assert outcome.reaction_ns is not None
    assert 0 < outcome.reaction_ns < outcome.scenario.after_ns - outcome.scenario.congest_ns
    assert done.virtual._controller.settled
    assert_tables_as_wanted(done.virtual, done.virtual.paths.routes)


def figures(done: Run, decision: Decision, path: tuple[str, ...]) -> PathFigures:
    """Return what a path was worth when a decision was made."""
    return next(candidate for candidate in decision.candidates if candidate.switches == path)


def test_the_circle_closes_on_abilene_with_the_committed_demands() -> None:
    settings = DemoSettings()
    quick = msgspec.structs.replace(
        settings,
        scenario=ScenarioSettings(hops_per_s=1000, warm_up_s=0.5, before_s=1.0, during_s=2.4, after_s=1.2),
        decide=msgspec.structs.replace(settings.decide, settle_ns=400 * MS),
    )
    demands = topologies_folder() / "abilene-demands.csv"
    assert_circle_closed(run("abilene", demands, quick), run("abilene", demands, quick, deciding=False))


def test_a_flow_leaves_the_congested_link_and_its_delay_falls(stacked: Run, stuck: Run) -> None:
    assert_circle_closed(stacked, stuck)
    assert str(stacked.outcome.scenario.congested) == "b->d"
    assert [move.flow for move in stacked.outcome.moves] == [FlowSpec("ha", "hd")]
    # Whoever stays is relieved too, and where the link is not full any more nothing is lost.
    for flow in stacked.outcome.figures():
        if flow.flow.src_host == "hb":
            left_alone = next(other for other in stuck.outcome.figures() if other.number == flow.number)
            assert (flow.phases[2].delay_mean_ns or 0) < (left_alone.phases[2].delay_mean_ns or 0) / 1.5
        assert flow.phases[2].lost == 0


def test_run_without_a_path_server_is_the_undeciding_twin(stuck: Run) -> None:
    scenario, seen = stuck.outcome.scenario, stuck.virtual
    unsteered = run_unsteered(scenario, STACKED, seed=1)
    for flow in stuck.outcome.figures():
        receiver = unsteered.receivers[flow.flow.dst_host]
        measured = tuple(receiver.measure(flow.number, m.start_ns, m.end_ns) for m in flow.phases)
        assert measured == flow.phases, flow.flow
    port = next(port for port, peer in seen.scenario.topology.neighbours["b"].items() if peer.node == "d")
    assert seen.fabric.hops is not None
    over_link = {hop.flow_id for hop in seen.fabric.hops.hops if (hop.switch, hop.out_port) == ("b", port)}
    assert unsteered.crossing == over_link
    assert len(over_link) > 1


def test_hop_by_hop_telemetry_closes_the_circle_too(fork: Callable[..., Run], stacked: Run, stuck: Run) -> None:
    watch = msgspec.structs.replace(STACKED.watch, mode="hop-by-hop")
    hopping = fork(msgspec.structs.replace(STACKED, watch=watch))
    assert_circle_closed(hopping, stuck)
    # A report from each hop instead of one from the sink; the paths of packets are put together again all the same.
    assert hopping.outcome.reports > 1.5 * stacked.outcome.reports
    topology = hopping.virtual.scenario.topology
    reporters = {topology.switch_by_id[node].name for node, _ in hopping.virtual.collector.snapshot().reporters}
    assert reporters >= {"a", "b", "d"}
    assert {record.reporter_id == record.node_id for record in hopping.records} == {True}
    assert {record.reporter_id == record.node_id for record in stacked.records} == {True, False}


@pytest.mark.parametrize("mode", Mode)
def test_each_mode_takes_the_way_round_that_it_is_for(
    mode: Mode, fork: Callable[..., Run], stacked: Run, stuck: Run
) -> None:
    decide = msgspec.structs.replace(STACKED.decide, mode=mode)
    done = stacked if mode is STACKED.decide.mode else fork(msgspec.structs.replace(STACKED, decide=decide))
    assert_circle_closed(done, stuck)
    decision = done.decisions[0]
    assert (decision.flow, decision.old_path) == (FlowSpec("ha", "hd"), ("a", "b", "d"))
    assert decision.new_path == AROUND[mode]
    old, narrow, wide = (
        figures(done, decision, path) for path in (decision.old_path, ("a", "x", "d"), ("a", "y", "d"))
    )
    assert narrow.cost_ns < wide.cost_ns < old.cost_ns or mode is not Mode.LEAST_DELAY
    assert old.bottleneck_bps < wide.bottleneck_bps
    assert narrow.bottleneck_bps < wide.bottleneck_bps * decide.widest_share


def test_equal_seeds_give_equal_runs_and_others_differ(fork: Callable[..., Run], stacked: Run) -> None:
    again, other = fork(STACKED), fork(STACKED, seed=2)
    assert again.outcome.moves == stacked.outcome.moves
    assert again.outcome.figures() == stacked.outcome.figures()
    assert again.outcome.snapshots == stacked.outcome.snapshots
    assert again.records == stacked.records
    assert again.virtual.fabric.hops == stacked.virtual.fabric.hops
    assert other.outcome.figures() != stacked.outcome.figures()
    assert_circle_closed(other, fork(STACKED, seed=2, deciding=False))


def routes_by_hand() -> list[RouteSet]:
    """Return sets of routes that move two flows to longer ways, shorter ones and none.

    The flow from hb goes back through a, whose base route leads to b: writing or removing its entries in another
    order than make before break, from the far end and then from the near one, makes a loop.
    """
    one, two = FlowSpec("ha", "hd"), FlowSpec("hb", "hd")
    ways = (("axd", "bayd"), ("ayd", "bd"), ("abd", "baxd"), ("ayd", "bayd"))
    sets = [(Route(one, tuple(first)), Route(two, tuple(second))) for first, second in ways]
    return [RouteSet(version, routes) for version, routes in enumerate((*sets, ()), start=1)]


def test_moves_without_congestion_lose_no_packet(fork: Callable[..., Run]) -> None:
    settings = DemoSettings(
        scenario=msgspec.structs.replace(SHORT, overload=0.35, peak_utilisation=0.25),
        delays=LoopDelays(write_ns=30 * MS, drain_ns=200 * MS),
        decide=NO_MOVES,
        watch=STACKED.watch,
    )
    sets = routes_by_hand()
    times_ns = [(500 + 600 * number) * MS for number in range(len(sets))]

    def move_by_hand(virtual: VirtualRun) -> None:
        for time_ns, routes in zip(times_ns, sets, strict=True):
            virtual.fabric.call_at(time_ns, partial(virtual._submit, routes))
            virtual.fabric.call_at(time_ns + 590 * MS, partial(assert_tables_as_wanted, virtual, routes))

    done = fork(settings, prelude=move_by_hand)
    outcome, hops = done.outcome, done.virtual.fabric.hops
    assert outcome.moves == ()
    for number, planned in enumerate(outcome.scenario.flows):
        receiver = outcome.receivers[planned.flow.dst_host]
        whole = receiver.measure(number, 0, outcome.scenario.end_ns)
        assert (whole.lost, whole.duplicates) == (0, 0), planned
        # Only on a shorter way can a packet overtake those on the longer one, and only while there are any.
        assert receiver.measure(number, 0, times_ns[1]).late == 0, planned
        for time_ns in times_ns:
            assert receiver.measure(number, time_ns + 250 * MS, time_ns + 600 * MS).late == 0, planned
    assert hops is not None
    crossed: dict[tuple[int, int], list[str]] = {}
    for hop in hops.hops:
        crossed.setdefault((hop.flow_id, hop.sequence), []).append(hop.switch)
    assert [switches for switches in crossed.values() if len(set(switches)) < len(switches)] == []
    assert {"axd", "ayd", "abd", "bayd", "baxd", "bd"} <= {"".join(switches) for switches in crossed.values()}
