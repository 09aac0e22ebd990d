"""The kernel fabric's host agent: its log, its plan, and a run over the loopback interface."""

from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.clock import MonotonicClock
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Arrivals, flow_between
from dataplane.fabric.kernel import agent
from dataplane.fabric.kernel.agent import Agent, AgentFlow, AgentPlan, plan_flow, read_log, replay
from dataplane.fabric.topology_file import load_topology

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


def test_what_is_sent_over_loopback_is_logged_and_measured(tmp_path: Path) -> None:
    port, clock = free_port(), MonotonicClock()
    log = tmp_path / "host.flows"
    plan = AgentPlan(
        origin_ns=clock.now_ns(),
        end_ns=200 * MS,
        seed=1,
        log=str(log),
        send=(flow(free_port(), port),),
        receive_ports=(port,),
        address="127.0.0.1",
    )
    with log.open("wb") as file:
        running = Agent(plan, clock, file)
        try:
            assert running.run() == 0
        finally:
            running.close()
    measured = replay(log).measure(7, 0, 300 * MS)
    # 1.6 Mbit/s in frames of 200 bytes for 0.1 s.
    assert (measured.packets, measured.bytes, measured.lost) == (100, 20_000, 0)
    assert measured.delay_mean_ns is not None
    assert 0 < measured.delay_mean_ns < 200 * MS


def test_nobody_listening_is_counted_and_ends_nothing() -> None:
    clock = MonotonicClock()
    plan = AgentPlan(
        origin_ns=clock.now_ns(),
        end_ns=60 * MS,
        seed=1,
        log="unused",
        send=(flow(free_port(), free_port(), stop_ns=50 * MS),),
        address="127.0.0.1",
    )
    running = Agent(plan, clock, io.BytesIO())
    try:
        assert running.run() > 0
    finally:
        running.close()


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
    if len(data) % 32:
        with pytest.raises(FabricError, match="ends in the middle of a record"):
            list(read_log(file))
    else:
        assert len(list(read_log(file))) == len(data) // 32


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(FabricError, match=r"none\.flows"):
        list(read_log(tmp_path / "none.flows"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("origin_ns: 1\n", "missing required field"),
        ("origin_ns: x\nend_ns: 1\nseed: 1\nlog: l\n", "expected `int`"),
        ("origin_ns: 1\nend_ns: 1\nseed: 1\nlog: l\nextra: 1\n", "unknown key"),
    ],
)
def test_a_wrong_plan_is_one_line(text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(text, encoding="utf-8")
    assert agent.main([str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"millrace agent: {file}")
    assert problem in said
    assert said.count("\n") == 1
