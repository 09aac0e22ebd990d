"""Packets explained alongside the traffic: the switch behaves as without, and the limit holds."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError, SwitchError
from dataplane.nic import NicPort, memory_pair
from dataplane.stf import PipelineName
from dataplane.stf.pipelines import pipeline_factory
from dataplane.switch.arguments import parse_arguments
from dataplane.switch.compiled.switch import NativeSwitch
from dataplane.switch.switch import PortSettings, Switch
from dataplane.switch.tables import CloneSession, Replica
from dataplane.switch.tracing.live.options import TraceSettings, trace_words
from dataplane.switch.tracing.live.tapped import tapped_factory
from dataplane.switch.tracing.live.tracer import LiveTracer
from tests.dataplane.switch.compiled.queued_bench import own_program
from tests.dataplane.switch.scenario_events import Event
from tests.dataplane.switch.scenarios import scenarios
from tests.dataplane.switch.test_pipelines_agree import run
from tests.waiting import wait_until

SECOND_NS = 1_000_000_000
FRAME = bytes((0, 0, 5)) + b"payload"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1 << 62  # far behind the tracer's own start

    def now_ns(self) -> int:
        return self.now


def lines(path: Path) -> list[dict[str, object]]:
    """Return the complete lines written so far."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "traces.jsonl"


def traced_switch(tracer: LiveTracer, clock: Clock) -> Switch:
    factory = tapped_factory(tracer, lambda _port, _priority: 0, clock.now_ns)
    switch = Switch(1, [PortSettings(1), PortSettings(2)], VirtualClock(), pipeline_factory=factory)
    switch.commit(own_program("copies"))
    return switch


@pytest.mark.parametrize("name", ["copies", "forwarding", "stateful"])
@settings(max_examples=3, suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_tracing_switch_behaves_as_without_tracing(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    """Also the accounting: departures, digests, counters, registers and meters are the same."""
    events: list[Event] = data.draw(scenarios(name))
    path = tmp_path_factory.mktemp("traces") / "t.jsonl"
    clock = Clock()
    with LiveTracer(TraceSettings(file=path, packets=10_000, per_second=10_000), exact=True) as tracer:
        factory = tapped_factory(tracer, lambda _port, _priority: 0, clock.now_ns)
        seen = run(name, factory, events)
    assert seen == run(name, pipeline_factory(PipelineName.INTERPRETER), events)


def test_packets_are_chosen_by_the_filter(clock: Clock, file: Path) -> None:
    with LiveTracer(TraceSettings("order.argument==5 && ingress_port==2", file), exact=True) as tracer:
        switch = traced_switch(tracer, clock)
        switch.receive(1, [FRAME, FRAME])
        switch.receive(2, [FRAME[:2] + b"\x04", FRAME])
    (line,) = lines(file)
    assert (line["port"], line["data"]) == (2, FRAME.hex())
    assert line["unknown"]


def test_no_more_are_explained_than_a_second_and_all_may_have(
    clock: Clock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "millrace.trace")
    with LiveTracer(TraceSettings(file=file, packets=5, per_second=2), exact=True) as tracer:
        switch = traced_switch(tracer, clock)
        for _ in range(4):
            switch.receive(1, [FRAME] * 10)
            clock.now += SECOND_NS
    assert len(lines(file)) == 5
    messages = [record.message for record in caplog.records]
    assert messages[0] == "8 possibly matching packets were skipped: 2 a second are traced at most"
    assert "5 packets were traced: the limit is reached" in messages


def test_filter_unknown_to_the_program_traces_nothing(
    clock: Clock, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LiveTracer(TraceSettings("ipv4.ttl==1", file), exact=True) as tracer:
        traced_switch(tracer, clock).receive(1, [FRAME])
        with pytest.raises(ConfigError, match=r"--trace-filter: the program has no field 'ipv4\.ttl'"):
            tracer.check(own_program("copies"))
    assert lines(file) == []
    assert "packets are not traced: --trace-filter: the program has no field 'ipv4.ttl'" in caplog.text


def test_without_a_file_they_are_in_the_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "millrace.trace")
    with LiveTracer(TraceSettings(), exact=True) as tracer:
        traced_switch(tracer, clock).receive(1, [FRAME])
    assert caplog.records[0].message.startswith("packet 1: 10 bytes by port 1 at ")


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SwitchError, match="No such file or directory"):
        LiveTracer(TraceSettings(file=tmp_path / "none" / "t.txt"), exact=True)


# ---- alongside machine code


@pytest.fixture
def traced_native(file: Path) -> Iterator[tuple[NativeSwitch, NicPort]]:
    near, far = memory_pair(("s1", "t1"), slots=64)
    other, sink = memory_pair(("s2", "t2"), slots=64)
    ports = [PortSettings(1), PortSettings(2)]
    with LiveTracer(TraceSettings("order.argument==5", file, packets=3, per_second=1_000), exact=False) as tracer:
        switch = NativeSwitch(1, ports, {1: near, 2: other}, seed=7, tracer=tracer)
        state = switch.commit(own_program("copies"))
        state.clone_sessions[5] = CloneSession((Replica(2),))
        with switch:
            yield switch, far
    for port in (near, far, other, sink):
        port.close()


def test_workers_copy_what_is_meant_and_go_on(traced_native: tuple[NativeSwitch, NicPort], file: Path) -> None:
    switch, far = traced_native
    others = [bytes((1, 0, 4)) + bytes(20)] * 20
    far.send([*others, bytes((1, 0, 5, 1)), *others])
    wait_until(lambda: len(lines(file)) == 1, "one packet is explained")
    far.send([bytes((0, 0, 5, number)) for number in range(9)])
    wait_until(lambda: len(lines(file)) == 3, "no more than asked for")
    explained = lines(file)
    assert explained[0]["data"] == "01000501"
    sent = explained[0]["sent"]
    assert isinstance(sent, list)
    assert [line["port"] for line in sent] == [2, 2]
    wait_until(lambda: switch.counters().ports[1].rx_frames == 50, "everything came in")
    with switch.paused():
        assert switch.counters().drops == {"clone_session_unknown": 40}


# ---- the command line


def test_options_say_what_is_explained_and_come_back_as_words(tmp_path: Path) -> None:
    words = ["--no-p4", "--trace-filter", "ipv4 && ingress_port==1", "--trace-rate", "5", "--trace-file", "t.jsonl"]
    trace = parse_arguments(words).trace
    assert trace == TraceSettings("ipv4 && ingress_port==1", Path("t.jsonl"), 1_000, 5)
    assert parse_arguments(["--no-p4", *trace_words(trace)]).trace == trace
    assert parse_arguments(["--no-p4"]).trace is None


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trace-filter", "ipv4 &&"], "--trace-filter: ends where a field is expected, at column 8 of 'ipv4 &&'"),
        (["--trace-rate", "0"], "command line: argument --trace-rate: '0' is not a positive integer"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_one_line(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_arguments(["--no-p4", *words])
    assert str(caught.value) == problem
