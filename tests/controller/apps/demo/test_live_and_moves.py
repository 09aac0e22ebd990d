"""Output of the demo: the live view in terminals of every size, phases, and moves in reaction to the surge."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from collectors.collector import Collector
from collectors.values import Snapshot
from controller.apps.demo.command import figures_of
from controller.apps.demo.comparison import Unsteered, compare, gain_line
from controller.apps.demo.live import LiveView, Status
from controller.apps.demo.moves import first_arrival_ns, first_moves, first_on_new_path_ns, phase_name, room_line
from controller.apps.demo.outcome import Move, Outcome, flow_table
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.values import Rebalance
from dataplane.clock import NS_PER_S, VirtualClock
from dataplane.fabric.agent import Arrival
from dataplane.fabric.hosts import Probe, Receiver
from dataplane.fabric.load import SentLoad
from dataplane.topology.values import LinkKey

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
    quiet = Collector(scenario.topology, VirtualClock()).snapshot()
    assert phase_name(scenario, scenario.warm_up_ns - 1, (), (), quiet) == "warm-up"
    assert phase_name(scenario, scenario.warm_up_ns, (early,), (), quiet) == "before"
    assert phase_name(scenario, scenario.congest_ns, (early,), (), quiet) == "congested"
    assert first_on_new_path_ns(scenario, (early,), [], 0) is None


def queued(scenario: Scenario, link: LinkKey, queue_ns: int) -> Snapshot:
    """Return a state in which packets wait this long for a link."""
    snapshot = Collector(scenario.topology, VirtualClock()).snapshot()
    delay_ns = scenario.topology.directed_links[link].delay_ns + queue_ns
    state = replace(snapshot.links[link], delay_mean_ns=delay_ns)
    return replace(snapshot, links={**snapshot.links, link: state})


def test_traffic_is_rerouted_once_no_queue_is_full(scenario: Scenario) -> None:
    """Also where a flow has moved, or filled its new path; queues hold 150 ms."""
    surge, second_ns = scenario.congested, NS_PER_S
    switches = scenario.topology.switch.keys()
    other = next(key for key in scenario.topology.directed_links if key != surge and {key.src, key.dst} <= switches)
    move = Move(scenario.congest_ns, FlowSpec("h-a", "h-c"), (surge.src, surge.dst), (other.src, other.dst), "surge")
    change = Rebalance(scenario.congest_ns, surge.src, "c", (), (), surge, 1.1, 0.8, "surge")
    for moves, changes in (((move,), ()), ((), (change,)), ((move,), (change,))):

        def phase(after_ns: int, link: LinkKey, queue_ns: int) -> str:
            state = queued(scenario, link, queue_ns)
            return phase_name(scenario, scenario.congest_ns + after_ns, moves, changes, state)  # noqa: B023

        assert phase(second_ns, surge, 30_000_000) == "rerouted"
        assert phase(second_ns, surge, 60_000_000) == "congested"
        assert phase(3 * second_ns, surge, 60_000_000) == "no room"
        assert phase(3 * second_ns, other, 60_000_000) == ("no room" if moves else "rerouted")


def test_full_queue_at_the_end_is_told_with_the_reason(scenario: Scenario) -> None:
    assert room_line(outcome(scenario)) is None
    line = room_line(replace(outcome(scenario), no_room="no other path has room"))
    assert line is not None
    assert line.startswith("Not relieved: ")
    assert str(scenario.congested) in line
    assert line.endswith("the path server: no other path has room.")


def test_gain_is_of_background_flows_over_the_link(scenario: Scenario) -> None:
    """Each of three flows gets ten packets during the surge, the second flow late and with gaps on base routes."""
    crossing, other, surge = scenario.flows[0], scenario.flows[1], scenario.flows[-1]
    assert surge.surge

    def received(delay_ns: int, kept: range) -> dict[str, Receiver]:
        receivers = {host.name: Receiver() for host in scenario.topology.hosts}
        for planned in (other, surge, crossing):
            delayed_ns = delay_ns if planned is crossing else 1_000_000
            for number in kept if planned is crossing else range(10):
                sent_ns = scenario.congest_ns + number * 1_000_000
                payload = Probe(planned.number, number, sent_ns).encode()
                receivers[planned.flow.dst_host].receive_payload(payload, 1000, sent_ns + delayed_ns)
        return receivers

    steered = replace(outcome(scenario), receivers=received(4_000_000, range(10)))
    unsteered = Unsteered(received(90_000_000, range(0, 10, 3)), frozenset({crossing.number, surge.number}))
    compared = compare(steered, unsteered)
    assert (compared.flows, compared.link) == (1, str(scenario.congested))
    assert gain_line(compared) == (
        f"In the 13 s of the surge, the 1 background flow that base routes lead over {scenario.congested} had a mean "
        "delay of 90.0 ms and lost 60.0% of their packets without the path server; with it, 4.0 ms and 0.0%."
    )
    assert figures_of(steered, compared)["comparison"] == {
        "link": str(scenario.congested),
        "seconds": 13.0,
        "flows": 1,
        "without": {"delay_mean_ms": 90.0, "loss": 0.6},
        "with": {"delay_mean_ms": 4.0, "loss": 0.0},
        "all_background_without": {"delay_mean_ms": pytest.approx((4 * 90 + 10) / 14), "loss": 0.3},
        "all_background_with": {"delay_mean_ms": 2.5, "loss": 0.0},
    }


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
    assert "all background flows, mean" in captured.get()
    assert "moved flows" not in captured.get()


def test_the_reaction_counts_from_the_surge(scenario: Scenario) -> None:
    assert outcome(scenario, first_ns=scenario.congest_ns + NS_PER_S).reaction_ns == NS_PER_S
