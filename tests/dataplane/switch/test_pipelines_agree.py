"""Both pipelines make the same of everything: one scenario after the other on two switches, all that shows compared.

What is compared: departures with ports, bytes and times, packets to the CPU, digests, drops by name, parser errors,
counters (direct ones too), registers, and what the state refuses. MILLRACE_EXAMPLES sets the number of scenarios a
program, 6 if it is not given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from dataplane.clock import VirtualClock
from dataplane.program.model import Program
from dataplane.stf import PipelineName
from dataplane.stf.pipelines import pipeline_factory
from dataplane.switch.pipeline import DigestMessage
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import Departure, PipelineFactory, PortSettings, Switch, SwitchCounters
from dataplane.switch.tables import ForwardingState
from dataplane.switch.tracing.pipeline import TracedPipeline
from tests.dataplane.switch.registers import used_cells
from tests.dataplane.switch.scenario_events import Arrival, Event, Pause, PortChange, refused
from tests.dataplane.switch.scenarios import CPU_PORT, PORTS, PROGRAMS, load, scenarios
from tests.examples import IS_DEEP, examples

EXAMPLES = examples(4)
REFERENCE = PipelineName.INTERPRETER
LAST_NS = 60_000_000_000
QUICKLY_REACHED = ("fabric", "forwarding")
"""Programs whose scenarios are checked every time; those of the others with MILLRACE_EXAMPLES, in `make deep`."""
REACHED_ELSEWHERE = {"fabric_aggregation"}
"""Scenarios are fabric's; tests/p4 draws packets for its other parts, jobs and names."""


@dataclass(frozen=True)
class Seen:
    """Observable behaviour of a switch."""

    departures: list[Departure]
    packets_in: list[bytes]
    digests: list[DigestMessage]
    refusals: list[bool]
    counters: SwitchCounters
    parser_errors: dict[str, int]
    arrays: dict[str, object]


def run(name: str, factory: PipelineFactory, events: Sequence[Event]) -> Seen:
    """Run a scenario on a fresh switch; return its observable behaviour."""
    clock = VirtualClock()
    ports = [PortSettings(port, rate_bps=10_000_000 * port, queue_frames=3) for port in PORTS]
    switch = Switch(7, ports, clock, cpu_port=CPU_PORT, seed=3, deflect_session=1, pipeline_factory=factory)
    packets_in: list[bytes] = []
    digests: list[DigestMessage] = []
    switch.on_packet_in(packets_in.append)
    switch.on_digests(digests.extend)
    state = switch.commit(load(name))
    departures, refusals = [], []
    for event in events:
        match event:
            case Arrival(port, data):
                switch.receive(port, [data])
            case Pause(duration_ns):
                clock.advance_to(clock.now_ns() + duration_ns)
                departures += switch.advance(clock.now_ns())
            case PortChange(port, up):
                switch.set_port_status(port, up)
            case _:
                refusals.append(refused(event, state))
    departures += switch.advance(clock.now_ns() + LAST_NS)
    executable = switch._pipeline
    assert executable is not None
    errors = {error: number for error, number in executable.parser_errors.items() if number}
    return Seen(departures, packets_in, digests, refusals, _without_zeros(switch.counters()), errors, _arrays(state))


def _without_zeros(counters: SwitchCounters) -> SwitchCounters:
    """Return counters without drops that never happened, which a pipeline may list or not."""
    return SwitchCounters(counters.ports, {name: number for name, number in counters.drops.items() if number})


def _arrays(state: ForwardingState) -> dict[str, object]:
    arrays: dict[str, object] = {name: used_cells(cells) for name, cells in state.registers.items()}
    for name, counter in state.counters.items():
        arrays[f"counter {name}"] = [counter.read(index) for index in range(counter.spec.size)]
    for name, table in state.tables.items():
        arrays[f"table {name}"] = {
            (entry.match, entry.priority): (entry.packets, entry.bytes, entry.last_hit_us) for entry in table
        }
        arrays[f"default of {name}"] = (table.default_entry.packets, table.default_entry.bytes)
    return arrays


@pytest.mark.parametrize("pipeline", [name for name in PipelineName if name is not REFERENCE] or [REFERENCE])
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_pipelines_agree(name: str, pipeline: PipelineName, data: st.DataObject) -> None:
    events = data.draw(scenarios(name))
    wanted, got = run(name, pipeline_factory(REFERENCE), events), run(name, pipeline_factory(pipeline), events)
    for part in Seen.__dataclass_fields__:
        assert getattr(got, part) == getattr(wanted, part), part


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - REACHED_ELSEWHERE))
@settings(max_examples=max(2, EXAMPLES // 8), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_traced_pipeline_behaves_the_same_and_reports_every_drop(name: str, data: st.DataObject) -> None:
    made: list[TracedPipeline] = []

    def make_traced(program: Program, state: ForwardingState, rng: SplitMix) -> TracedPipeline:
        made.append(TracedPipeline(program, state, rng=rng))
        return made[0]

    events = data.draw(scenarios(name))
    assert run(name, make_traced, events) == run(name, pipeline_factory(REFERENCE), events)
    traces = made[0].take()
    assert len(traces) == made[0].frames_received
    told = Counter(reason for trace in traces for reason in trace.drops())
    assert told == Counter({reason: count for reason, count in made[0].drops.items() if count})


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - REACHED_ELSEWHERE) if IS_DEEP else QUICKLY_REACHED)
def test_scenarios_reach_the_program(name: str) -> None:
    """Without forwarded frames and hit entries, agreement would mean little.

    What a seed draws depends on the modules that are loaded: where some do not do, others have to.
    """
    sent = hits = parsed = 0
    counted = any(table.direct_counter for table in load(name).tables.values())

    @settings(max_examples=5, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck))
    @given(events=scenarios(name))
    def collect(events: list[Event]) -> None:
        nonlocal sent, hits, parsed
        seen = run(name, pipeline_factory(REFERENCE), events)
        sent += len(seen.departures) + len(seen.packets_in)
        parsed += sum(isinstance(event, Arrival) for event in events)
        tables = [
            entries for key, entries in seen.arrays.items() if key.startswith("table ") and isinstance(entries, dict)
        ]
        hits += sum(packets for entries in tables for packets, _, _ in entries.values())

    def is_reached() -> bool:
        return parsed > 200 and sent > parsed / 50 and (hits > 0 or not counted)

    for number in range(1, 61):
        seed(number)(collect)()
        if is_reached():
            break
    assert is_reached(), (parsed, sent, hits)
