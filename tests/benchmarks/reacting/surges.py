"""Successive surges on several fabrics: moves over time, and their effect on flows.

Each run has a twin with the same seed in which the path server moves nothing. That twin tells what the surge does to
its victims, and how all other flows would have fared: the faster a surge is answered, the less of it the run itself
shows.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console

from controller.apps.demo.live import LiveView
from controller.apps.demo.outcome import Outcome
from controller.apps.demo.prepare import Prepared, prepare, sampled
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from controller.apps.demo.settings import DemoSettings
from controller.apps.demo.virtual import VirtualRun
from controller.network.intents import FlowSpec
from controller.network.paths.records.database import open_path_database
from controller.network.paths.records.recorder import Recorder
from dataplane.fabric.hosts import FlowMeasurement
from dataplane.topology.file import topologies_folder
from tests.benchmarks.reacting.small_flows import SMALL, laid_anew_ns, scattered

TOPOLOGIES = (
    *("abilene", "geant", "leaf-spine", "fat-tree-4", "fat-tree:k=8", "ring"),
    *(f"leaf-spine{SMALL}", f"fat-tree-4{SMALL}"),
)
SCENARIO = ScenarioSettings(warm_up_s=1.0, before_s=2.0, during_s=1.0, after_s=6.0)
WITHIN_NS = 1_000_000_000
"""Network time in which a surge is to be answered."""
TWICE_NS = 5_000_000_000
"""A flow that moves twice within this time swings."""
_FRAMES = 4
"""A flow counts as slower if it waits for this many more frames than without moves, and a quarter longer."""
_SLOWER = 1.25


@dataclass(frozen=True, slots=True)
class Reaction:
    """Results of one run and its twin; delays are means over the victims' packets, in ns, None without packets.

    `victims` are the background flows that crossed the surge's link when it began. `relieved_ns` is the time from the
    surge's start to the decision after which the link's load fits; `moved_ns` the time to the first packet on a new
    path. Where weights have changed, both apply to the packets that leave the link's switch. `moves` counts both kinds.
    """

    topology: str
    seed: int
    victims: int
    moved_ns: int | None
    relieved_ns: int | None
    moves: int
    before_ns: float | None
    reacting_ns: float | None
    after_ns: float | None
    congested_ns: float | None
    twice: int
    elsewhere: int
    slower: tuple[str, ...]

    @property
    def ratio(self) -> float | None:
        """The victims' delay after the moves over that in the same time without any."""
        return None if self.after_ns is None or not self.congested_ns else self.after_ns / self.congested_ns

    @property
    def in_time(self) -> bool:
        """True if the link was relieved, and a packet was on a new path, within the time limit."""
        times = (self.moved_ns, self.relieved_ns)
        return all(time_ns is not None and time_ns <= WITHIN_NS for time_ns in times)


def prepared(spec: str, scenario: ScenarioSettings = SCENARIO) -> Prepared:
    """Return the demo's scenario on a topology; Abilene's demands are the bundled ones, wherever this runs."""
    if spec.endswith(SMALL):
        return scattered(prepared(spec.removesuffix(SMALL), scenario))
    demands = topologies_folder() / "abilene-demands.csv" if spec == "abilene" else None
    return prepare(spec, demands, scenario)


def run(plan: Prepared, settings: DemoSettings, seed: int, *, deciding: bool = True) -> tuple[Outcome, VirtualRun]:
    """Return what a run in virtual time showed."""
    settings = sampled(settings, plan.scenario)
    database = open_path_database(":memory:")
    view = LiveView(plan.scenario.topology, Console(file=io.StringIO()))
    try:
        recorder = Recorder(database, max_records=1_000_000)
        virtual = VirtualRun(plan.scenario, settings, view, recorder, seed, deciding)
        return virtual.run(), virtual
    finally:
        database.close()


def react(spec: str, plan: Prepared, seed: int, settings: DemoSettings | None = None) -> Reaction:
    """Run a surge with and without moves."""
    settings = settings or DemoSettings(scenario=SCENARIO)
    outcome, virtual = run(plan, settings, seed)
    twin, _ = run(plan, settings, seed, deciding=False)
    scenario = plan.scenario
    crossing = _crossing(virtual)
    background = {p.number for p in scenario.flows if not p.surge}
    victims = crossing & background
    moved = {move.flow for move in outcome.moves if move.time_ns >= scenario.congest_ns}
    there = {p.flow for p in scenario.flows if p.number in crossing}
    moved_ns, relieved_ns = outcome.reaction_ns, _relieved_ns(scenario, outcome, crossing)
    if outcome.rebalances:
        moved_ns, relieved_ns = laid_anew_ns(virtual, crossing)
    before_ns, reacting_ns, after_ns = (_mean(outcome, victims, period) for period in range(3))
    return Reaction(
        topology=spec,
        seed=seed,
        victims=len(victims),
        moved_ns=moved_ns,
        relieved_ns=relieved_ns,
        moves=len(outcome.moves) + len(outcome.rebalances),
        before_ns=before_ns,
        reacting_ns=reacting_ns,
        after_ns=after_ns,
        congested_ns=_mean(twin, victims, 2),
        twice=_twice(outcome),
        elsewhere=len(moved - there),
        slower=tuple(_slower(scenario, outcome, twin, victims, moved)),
    )


def _crossing(virtual: VirtualRun) -> set[int]:
    """Return the flows whose packets were put on the surge's link before it began or within a tenth of a second."""
    scenario, flows = virtual.scenario, set()
    assert virtual.fabric.hops is not None
    neighbours = scenario.topology.neighbours[scenario.congested.src]
    port = next(port for port, peer in neighbours.items() if peer.node == scenario.congested.dst)
    for hop in virtual.fabric.hops.hops:
        if hop.started_ns > scenario.congest_ns + 100_000_000:
            break
        if hop.switch == scenario.congested.src and hop.out_port == port:
            flows.add(hop.flow_id)
    return flows & scenario.by_number().keys()


def _relieved_ns(scenario: Scenario, outcome: Outcome, crossing: set[int]) -> int | None:
    """Return from the surge's start to the decision after which the link is sent no more than its rate."""
    left_bps = sum(p.rate_bps for p in scenario.flows if p.number in crossing)
    rate_bps = scenario.topology.directed_links[scenario.congested].rate_bps
    rates = {p.flow: 0.0 for p in scenario.flows}
    for planned in scenario.flows:
        rates[planned.flow] += planned.rate_bps if planned.number in crossing else 0.0
    link = (scenario.congested.src, scenario.congested.dst)
    for move in outcome.moves:
        left_bps += rates[move.flow] * ((link in pairwise(move.new)) - (link in pairwise(move.old)))
        if move.time_ns >= scenario.congest_ns and left_bps <= rate_bps:
            return move.time_ns - scenario.congest_ns
    return None


def _measured(outcome: Outcome, number: int, period: int) -> FlowMeasurement:
    phase = outcome.phases[period]
    host = outcome.scenario.by_number()[number].flow.dst_host
    return outcome.receivers[host].measure(number, phase.start_ns, phase.end_ns)


def _mean(outcome: Outcome, numbers: Iterable[int], period: int) -> float | None:
    measured = [_measured(outcome, number, period) for number in numbers]
    packets = sum(m.packets for m in measured if m.delay_mean_ns is not None)
    total = sum(m.delay_mean_ns * m.packets for m in measured if m.delay_mean_ns is not None)
    return total / packets if packets else None


def _twice(outcome: Outcome) -> int:
    """Return how many moves came within `TWICE_NS` of the same flow's last one, and weights of the same group's."""
    last: dict[FlowSpec, int] = {}
    groups: dict[tuple[str, str], int] = {}
    count = 0
    for change in outcome.rebalances:
        group = change.switch, change.destination
        count += group in groups and change.time_ns - groups[group] < TWICE_NS
        groups[group] = change.time_ns
    for move in outcome.moves:
        count += move.flow in last and move.time_ns - last[move.flow] < TWICE_NS
        last[move.flow] = move.time_ns
    return count


def _slower(
    scenario: Scenario, outcome: Outcome, twin: Outcome, victims: set[int], moved: set[FlowSpec]
) -> Iterable[str]:
    """Yield the background flows, neither victims nor moved, that were slower for the moves."""
    slowest = min(link.rate_bps for link in scenario.topology.links)
    frames_ns = _FRAMES * 8 * scenario.frame_bytes * 1_000_000_000 / slowest
    for planned in scenario.flows:
        if planned.surge or planned.number in victims or planned.flow in moved:
            continue
        ours, theirs = (_measured(o, planned.number, 2).delay_mean_ns for o in (outcome, twin))
        if ours is not None and theirs is not None and ours > max(_SLOWER * theirs, theirs + frames_ns):
            yield f"{planned.flow.src_host}->{planned.flow.dst_host}: {theirs / 1e6:.1f} to {ours / 1e6:.1f} ms"
