"""The kernel fabric's host agent: its log, its plan, its start, and runs over the loopback interface."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.clock import Clock, MonotonicClock, VirtualClock
from dataplane.errors import FabricError
from dataplane.fabric import agent
from dataplane.fabric.agent import Agent, AgentFlow, AgentPlan, plan_flow, read_load, read_log, replay
from dataplane.fabric.hosts import Arrivals, flow_between
from dataplane.fabric.load import SentLoad
from dataplane.topology.file import load_topology
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[3]
MS = 1_000_000


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def flow(source: int, destination: int, **changes: int) -> AgentFlow:
    fields = {"rate_bps": 1_600_000, "frame_bytes": 200, "start_ns": 0, "stop_ns": 100 * MS} | changes
    return AgentFlow(
        flow_id=7, src="127.0.0.1", dst="127.0.0.1", src_port=source, dst_port=destination, poisson=False, **fields
    )


@dataclass
class Steps:
    """A clock that shows each of its times once, then the last one forever."""

    times_ns: list[int]

    def now_ns(self) -> int:
        return self.times_ns.pop(0) if len(self.times_ns) > 1 else self.times_ns[0]


@dataclass
class ClockUntil:
    """A clock that jumps past every plan's end after an event."""

    clock: Clock
    happened: Callable[[], bool]

    def now_ns(self) -> int:
        return 1 << 62 if self.happened() else self.clock.now_ns()


def plan_of(**changes: object) -> AgentPlan:
    fields: dict[str, object] = {"end_ns": 200 * MS, "seed": 1, "log": "", "load": "", "address": "127.0.0.1"}
    return msgspec.convert(fields | changes, AgentPlan)


def run_agent(plan: AgentPlan, clock: Clock, log: BinaryIO, origin_ns: int) -> SentLoad:
    """Run an agent of one flow to the end of its plan; return what it sent."""
    running = Agent(plan, clock, log)
    try:
        running.run(origin_ns)
    finally:
        running.close()
    running.skip_the_rest()
    return running.load()[7]


def test_what_is_sent_over_loopback_is_logged_and_measured(tmp_path: Path) -> None:
    port, clock = free_port(), MonotonicClock()
    log = tmp_path / "host.flows"
    # Nothing is too late to be sent, however busy the machine.
    plan = plan_of(send=(flow(free_port(), port),), receive_ports=(port,), end_ns=10**10, skip_after_ns=10**10)
    with log.open("wb") as file:
        running = Agent(plan, ClockUntil(clock, lambda: file.tell() >= 100 * 33), file)
        try:
            running.run(clock.now_ns())
        finally:
            running.close()
    load = running.load()[7]
    assert (load.planned, load.sent, load.missing, load.skipped, load.refused) == (100, 100, 0, 0, 0)
    measured = replay(log).measure(7, 0, 10**10)
    # 1.6 Mbit/s in frames of 200 bytes for 0.1 s.
    assert (measured.packets, measured.bytes, measured.lost) == (100, 20_000, 0)
    assert measured.delay_mean_ns is not None
    assert 0 < measured.delay_mean_ns < 10**10


def test_agent_skips_very_late_packets_and_sends_others() -> None:
    """A packet is due every millisecond for 100 ms; the agent runs only once, after 60 ms."""
    port, log = free_port(), io.BytesIO()
    plan = plan_of(send=(flow(free_port(), port),), receive_ports=(port,), skip_after_ns=35 * MS)
    load = run_agent(plan, ClockUntil(VirtualClock(60 * MS), lambda: log.tell() >= 36 * 33), log, 0)
    # Packets of 0 to 24 ms are over 35 ms late, of 25 to 39 ms over 20 ms; of 40 to 60 ms on time; others never due.
    assert load == SentLoad(planned=100, sent=36, late=15, skipped=25 + 39, worst_late_ns=60 * MS)


def test_what_the_plan_has_left_at_its_end_counts_as_left_out() -> None:
    plan = plan_of(send=(flow(free_port(), free_port()),))
    load = run_agent(plan, Steps([1 << 62]), io.BytesIO(), 0)
    assert load == SentLoad(planned=100, skipped=100)


def test_nobody_listening_is_counted_and_ends_nothing() -> None:
    plan = plan_of(send=(flow(free_port(), free_port(), stop_ns=50 * MS),))
    load = run_agent(plan, Steps([10 * MS] * 50 + [1 << 62]), io.BytesIO(), 0)
    assert load.refused > 0
    assert (load.planned, load.sent + load.refused, load.skipped) == (50, 11, 39)


def test_a_flow_of_the_topology_becomes_a_planned_one() -> None:
    topology = load_topology("abilene")
    whole = flow_between(topology, 3, "h-sttl", "h-wash", 1000, arrivals=Arrivals.POISSON, stop_ns=5)
    planned = plan_flow(whole)
    assert (planned.flow_id, planned.src, planned.dst, planned.poisson) == (3, "10.0.11.1", "10.0.12.1", True)
    with pytest.raises(FabricError, match="flow 4 has no end"):
        plan_flow(flow_between(topology, 4, "h-sttl", "h-wash", 1000))


@given(data=st.binary(max_size=200))
def test_any_log_reads_or_is_named(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("log") / "a.flows"
    file.write_bytes(data)
    if len(data) % 33:
        with pytest.raises(FabricError, match="ends in the middle of a record"):
            list(read_log(file))
    else:
        assert len(list(read_log(file))) == len(data) // 33


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=r"none\.flows"):
        list(read_log(tmp_path / "none.flows"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("end_ns: 1\n", "missing required field"),
        ("end_ns: x\nseed: 1\nlog: l\nload: s\n", "end_ns: 'x' is not a time such as 500ms"),
        ("end_ns: 1\nseed: 1\nlog: l\nload: s\nextra: 1\n", "unknown key"),
    ],
)
def test_a_wrong_plan_is_one_line(text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text, encoding="utf-8")
    assert agent.main([str(file)]) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"millrace agent: {file}")
    assert problem in stderr
    assert stderr.count("\n") == 1


def start(plan: AgentPlan, folder: Path) -> subprocess.Popen[str]:
    file = folder / "plan"
    file.write_bytes(msgspec.json.encode(plan))
    command = [sys.executable, "-m", "dataplane.fabric.agent", str(file)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def test_a_process_sends_nothing_before_it_is_given_a_start(tmp_path: Path) -> None:
    port, clock = free_port(), MonotonicClock()
    log, load = tmp_path / "host.flows", tmp_path / "host.load"
    plan = plan_of(log=str(log), load=str(load), send=(flow(free_port(), port),), receive_ports=(port,), end_ns=10**9)
    with start(plan, tmp_path) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        # It can receive already: early packets wait in its socket.
        ready_ns = clock.now_ns()
        process.stdin.write(f"{ready_ns}\n")
        process.stdin.close()
        assert process.wait(HANG_S) == 0
    sent = read_load(load)[7]
    assert sent.planned == 100
    arrivals = list(read_log(log))
    assert len(arrivals) == sent.sent
    assert all(arrival.probe.sent_ns >= 0 for arrival in arrivals)
    # No router was on the way over loopback.
    assert {arrival.hop_limit for arrival in arrivals} == {64}


@pytest.mark.parametrize(("line", "problem"), [("", "got no start time"), ("now\n", "'now' is not the time")])
def test_a_process_without_a_start_ends_with_one_line(line: str, problem: str, tmp_path: Path) -> None:
    plan = plan_of(log=str(tmp_path / "log"), load=str(tmp_path / "load"))
    with start(plan, tmp_path) as process:
        _, errors = process.communicate(line, timeout=HANG_S)
    assert process.returncode == 1
    assert errors.startswith("millrace agent: ")
    assert problem in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "load").exists()


@pytest.mark.parametrize("content", [b"", b"{}x", b'{"7": {"planned": "x"}}'])
def test_a_load_that_is_cut_off_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.load"
    file.write_bytes(content)
    with pytest.raises(FabricError, match=r"a\.load"):
        read_load(file)


def test_an_agent_starts_without_what_builds_fabrics() -> None:
    """A fabric starts one per host; importing the fabric builder takes a second of CPU time."""
    code = "import sys, dataplane.fabric.agent; print(*sorted({'finsy', 'pyroute2', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []
