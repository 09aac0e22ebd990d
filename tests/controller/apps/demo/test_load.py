"""The demo's own load: hosts sent as planned, or the demo reports the deviation."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from controller.apps.demo.load import as_planned, host_loads, load_figures, load_line, load_table
from controller.apps.demo.outcome import Outcome
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import Scenario, ScenarioSettings
from dataplane.fabric.hosts import Probe, Receiver
from dataplane.fabric.load import SentLoad

MS = 1_000_000
PACKETS = 100


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    """Return the demo's own scenario."""
    return prepare("leaf-spine", None, ScenarioSettings()).scenario


def run_of(scenario: Scenario, *, exact: bool = False, numbers: range = range(PACKETS)) -> Outcome:
    """Return a run in which each flow sent as planned and these packets arrived before the surge."""
    receivers = {host.name: Receiver() for host in scenario.topology.hosts}
    for planned in scenario.flows:
        for number in numbers:
            payload = Probe(planned.number, number, 0).encode()
            receivers[planned.flow.dst_host].receive_payload(payload, 1000, scenario.warm_up_ns + number)
    sent = {planned.number: SentLoad(planned=PACKETS, sent=PACKETS) for planned in scenario.flows}
    return Outcome(scenario, receivers, (), (), 0, 0, None, sent, exact)


def changed(outcome: Outcome, host: str, load: SentLoad) -> Outcome:
    """Return the run with other loads of one host's flows."""
    numbers = [planned.number for planned in outcome.scenario.flows if planned.flow.src_host == host]
    return replace(outcome, sent={**outcome.sent, **dict.fromkeys(numbers, load)})


@pytest.mark.parametrize("exact", [True, False])
def test_a_load_as_planned_is_one_quiet_line(scenario: Scenario, exact: bool) -> None:
    whole = run_of(scenario, exact=exact)
    count = PACKETS * len(scenario.flows)
    assert as_planned(whole)
    assert load_line(whole) == f"Load as planned: {count} of {count} packets sent, {count} of them received."
    assert sum(host.sent.planned for host in host_loads(whole)) == count
    figures = load_figures(whole)
    assert (figures["as_planned"], figures["sent"], figures["worst_late_ms"]) == (True, count, 0)


def test_late_host_is_named_with_its_delay(scenario: Scenario) -> None:
    load = SentLoad(planned=100, sent=70, late=20, skipped=30, worst_late_ns=812 * MS)
    starved = changed(run_of(scenario), scenario.flows[0].flow.src_host, load)
    assert not as_planned(starved)
    line = load_line(starved)
    assert line.startswith("The load was not as planned: hosts sent ")
    assert f"{scenario.flows[0].flow.src_host} 70.0%" in line
    assert "left over 20 ms late" in line
    assert line.endswith("Probable cause: too little CPU time, hosts were up to 812 ms behind.")
    assert "\n" not in line
    console = Console(file=io.StringIO(), width=120)
    with console.capture() as captured:
        console.print(load_table(starved))
    assert captured.get().count(" 812 ") == 1  # one host deviates


def test_frames_that_receivers_could_not_read_are_told(scenario: Scenario) -> None:
    run = run_of(scenario)
    receiver = run.receivers[scenario.flows[0].flow.dst_host]
    receiver.receive(bytes(5), 0)
    receiver.unmeasured = 3
    assert not as_planned(run)
    assert ", 1 frames arrived malformed, 3 packets were of more than " in load_line(run)


def test_virtual_time_has_no_tolerance_and_the_kernel_a_little(scenario: Scenario) -> None:
    host = scenario.flows[0].flow.src_host
    refused = SentLoad(planned=100, sent=99, refused=1)
    assert as_planned(changed(run_of(scenario), host, refused))
    exact = changed(run_of(scenario, exact=True), host, refused)
    assert not as_planned(exact)
    assert "Probable cause: full host queues" in load_line(exact)
    assert not as_planned(changed(run_of(scenario, exact=True), host, SentLoad(100, 100, worst_late_ns=1)))
    assert not as_planned(changed(run_of(scenario), host, SentLoad(100, 100, late=6, worst_late_ns=30 * MS)))


def test_loss_before_the_surge_is_reported_though_all_was_sent(scenario: Scenario) -> None:
    lossy = run_of(scenario, numbers=range(0, PACKETS, 2))
    assert not as_planned(lossy)
    line = load_line(lossy)
    assert "49.5% of the background was lost before the surge" in line
    assert "probable cause is a receiver or a switch that had too little CPU time" in line
