"""Output of the demo: the live view in terminals of every size, phases, and moves in reaction to the surge."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from collectors.collector import Collector
from controller.apps.demo.command import figures_of
from controller.apps.demo.live import LiveView, Status
from controller.apps.demo.moves import first_arrival_ns, first_moves, first_on_new_path_ns, phase_name
from controller.apps.demo.outcome import Move, Outcome, flow_table
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from controller.network.intents import FlowSpec
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.fabric.agent import Arrival
from dataplane.fabric.hosts import Probe, Receiver
from dataplane.fabric.load import SentLoad

STATUS = Status(12.5, 20.0, "congested", 123456, 7)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """Return the demo's own scenario."""
    return prepare("abilene", None, ScenarioSettings()).scenario


def outcome(scenario: Scenario, moves: tuple[Move, ...] = (), first_ns: int | None = None) -> Outcome:
    """Return a run in which no packet arrived."""
    receivers = {host.name: Receiver() for host in scenario.topology.hosts}
    sent = {planned.number: SentLoad() for planned in scenario.flows}
    return Outcome(scenario, receivers, moves, (), 0, 0, first_ns, sent, exact=True)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (160, 50), (40, 10)])
@pytest.mark.parametrize("decisions", [0, 20])
def test_the_live_view_fits_any_terminal(scenario: Scenario, width: int, height: int, decisions: int) -> None:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    view = LiveView(scenario.topology, console, congested=scenario.congested)
    for number in range(decisions):
        view.decisions.append(f"{number} " + "long reason " * 30)
    snapshot = Collector(scenario.topology, VirtualClock()).snapshot()
    with console.capture() as captured:
        console.print(view._render(STATUS, snapshot))
    lines = captured.get().splitlines()
    assert len(lines) < height
    assert all(len(line) <= width for line in lines)
    assert "decisions" in captured.get()
    assert (f"{decisions - 1} long reason" if decisions else "none yet") in captured.get()


def test_phases_and_reaction_follow_moves_after_the_surge(scenario: Scenario) -> None:
    """A move by noise before the surge does not count as a reaction."""
    early = Move(scenario.congest_ns - 1, FlowSpec("h-a", "h-b"), ("a", "b"), ("a", "c", "b"), "noise")
    late = Move(scenario.congest_ns + 1, FlowSpec("h-a", "h-c"), ("a", "c"), ("a", "b", "c"), "surge")
    assert first_moves(scenario, (early,)) == {}
    later = Move(scenario.congest_ns + 2, FlowSpec("h-a", "h-b"), ("a", "b"), ("a", "d", "b"), "surge")
    again = Move(scenario.congest_ns + 3, FlowSpec("h-a", "h-c"), ("a", "b", "c"), ("a", "c"), "back")
    assert list(first_moves(scenario, (early, late, later, again)).items()) == [(late.flow, late), (later.flow, later)]
    assert phase_name(scenario, scenario.warm_up_ns - 1, ()) == "warm-up"
    assert phase_name(scenario, scenario.warm_up_ns, (early,)) == "before"
    assert phase_name(scenario, scenario.congest_ns, (early,)) == "congested"
    assert phase_name(scenario, scenario.congest_ns + 2, (early, late)) == "rerouted"
    assert first_on_new_path_ns(scenario, (early,), [], 0) is None


def test_packet_with_more_switches_came_by_the_longer_path(scenario: Scenario) -> None:
    """Also without telemetry; packets in flight before the move have as many hops left as before."""
    flow = scenario.flows[0]
    at_ns = scenario.congest_ns + 200_000_000
    move = Move(at_ns, flow.flow, ("a", "b", "c"), ("a", "d", "e", "c"), "surge")
    gone = ((at_ns - 9, 61), (at_ns + 5, 61), (at_ns + 7, 60), (at_ns + 9, 60))
    arrivals = [Arrival(Probe(flow.number, index, 0), ns, 1000, left) for index, (ns, left) in enumerate(gone)]
    others = [Arrival(Probe(1, 0, 0), at_ns - 8, 1000, 61), Arrival(Probe(1, 1, 0), at_ns + 6, 1000, 60)]
    assert scenario.flows[1].flow != flow.flow

    def of(host: str) -> list[Arrival]:
        return sorted(arrivals + others, key=lambda arrival: arrival.arrived_ns) if host == flow.flow.dst_host else []

    assert first_arrival_ns(scenario, (move,), of) == at_ns + 7
    as_long = Move(at_ns, flow.flow, ("a", "b", "c"), ("a", "d", "c"), "surge")
    assert first_arrival_ns(scenario, (as_long,), of) is None
    assert first_arrival_ns(scenario, (), of) is None


def test_no_moves_are_reported_without_figures(scenario: Scenario) -> None:
    nothing = outcome(scenario)
    assert nothing.reaction_ns is None
    figures = figures_of(nothing)
    assert (figures["reaction_ms"], figures["delay_after_ms"], figures["moves"]) == (None, None, 0)
    console = Console(file=io.StringIO(), width=160)
    with console.capture() as captured:
        console.print(flow_table(nothing))
    assert "(surge)" in captured.get()
    assert "moved flows, mean" in captured.get()


def test_the_reaction_counts_from_the_surge(scenario: Scenario) -> None:
    assert outcome(scenario, first_ns=scenario.congest_ns + NS_PER_S).reaction_ns == NS_PER_S
