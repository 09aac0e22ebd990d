"""The compiled pipeline in a switch: packets are returned, counters have names, the cache is used."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from dataplane.clock import VirtualClock
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.switch.compiled import program as compiling
from dataplane.switch.compiled.memory.pool import BUFFER_BYTES
from dataplane.switch.compiled.pipeline import CompiledPipeline, compiled_pipeline
from dataplane.switch.compiled.program import Purpose, compile_program
from dataplane.switch.pipeline import Dequeued, Frame
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.switch import PortSettings, Switch
from dataplane.switch.tables import CloneSession, ForwardingState, Replica

PROGRAMS = Path(__file__).parents[2] / "programs"


def own_program(name: str) -> Program:
    return load_program(PROGRAMS / f"{name}.json", PROGRAMS / f"{name}.p4info.txtpb")


@pytest.fixture(scope="module")
def copies() -> Program:
    return own_program("copies")


@pytest.fixture
def pipeline(copies: Program) -> CompiledPipeline:
    state = ForwardingState(copies)
    state.multicast_groups[1] = tuple(Replica(port, port) for port in range(1, 6))
    state.clone_sessions[1] = CloneSession((Replica(3, 1),))
    return compiled_pipeline(copies, state, SplitMix(1))


def dequeued(packet: object, port: int = 2) -> Dequeued:
    return Dequeued(packet, port, 0, 5, 0, 0, 0)


def test_packets_that_python_forgets_come_home(pipeline: CompiledPipeline) -> None:
    placements = pipeline.ingress([Frame(1, b"\x03\x00\x01" + bytes(50))] * 10, 5)
    assert [item.port for item in placements[:6]] == [1, 2, 3, 4, 5, 1]
    assert pipeline.packets_in_use == 50
    result = pipeline.egress([dequeued(item.packet) for item in placements[:20]], 6)
    assert len(result.outputs) == 20
    assert pipeline.packets_in_use == 30
    del placements, result
    gc.collect()
    pipeline.ingress([], 7)
    assert pipeline.packets_in_use == 0


def test_a_frame_longer_than_a_buffer_is_dropped_under_a_name(pipeline: CompiledPipeline) -> None:
    placements = pipeline.ingress([Frame(1, bytes(BUFFER_BYTES)), Frame(1, bytes(BUFFER_BYTES + 1))], 5)
    assert len(placements) == 1
    assert pipeline.drops == {"frame_too_long": 1}
    # Headers added by egress no longer fit.
    assert pipeline.egress([dequeued(placements[0].packet)], 6).outputs == []
    assert pipeline.drops == {"frame_too_long": 2}
    assert pipeline.packets_in_use == 0


def test_more_packets_than_blocks_are_dropped_as_no_buffer(copies: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.switch.compiled.pipeline.PACKETS", 64)
    state = ForwardingState(copies)
    pipeline = compiled_pipeline(copies, state, SplitMix(1))
    placements = pipeline.ingress([Frame(1, bytes(60))] * 100, 5)
    assert len(placements) == 64
    assert pipeline.drops == {"no_buffer": 36}


def test_a_switch_replaces_its_program_while_packets_wait(copies: Program) -> None:
    clock = VirtualClock()
    settings = [PortSettings(1), PortSettings(2, rate_bps=1_000)]
    switch = Switch(1, settings, clock, pipeline_factory=compiled_pipeline)
    switch.commit(copies)
    switch.receive(1, [bytes(60)] * 9)
    switch.advance(0)
    switch.commit(copies)
    switch.receive(1, [bytes(60)])
    assert switch.counters().ports[2].drops == {"program_replaced": 8}
    assert switch.counters().ports[2].queued_frames == 1


def test_the_cache_answers_the_second_time(
    tmp_path: Path, copies: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "millrace.switch"):
        first = compile_program(copies, cache_dir=tmp_path)
    assert caplog.messages == ["compiling copies, for some seconds; later starts find the code in the cache"]
    (stored,) = tmp_path.glob("*.o")
    monkeypatch.setattr(compiling, "_make_module", lambda *_: pytest.fail("compiled again"))
    compiling._libraries.clear()
    again = compile_program(copies, cache_dir=tmp_path)
    assert again.library is not first.library
    assert (again.region_bytes, again.log_messages) == (first.region_bytes, first.log_messages)
    monkeypatch.undo()
    stored.write_bytes(stored.read_bytes()[:-100])
    compiling._libraries.clear()
    assert compile_program(copies, cache_dir=tmp_path).region_bytes == first.region_bytes


def test_code_in_use_is_shared_where_nothing_can_be_stored(copies: Program) -> None:
    nowhere = Path("/dev/null/cache")
    first, again = (compile_program(copies, cache_dir=nowhere) for _ in range(2))
    assert again.library is first.library
    assert compile_program(copies, threads=2, cache_dir=nowhere).library is not first.library


def test_code_for_one_thread_is_not_code_for_many(tmp_path: Path, copies: Program) -> None:
    for purpose, threads in ((Purpose.BURSTS, 1), (Purpose.BURSTS, 2), (Purpose.BURSTS, 3)):
        compile_program(copies, purpose, threads=threads, cache_dir=tmp_path)
    assert len(list(tmp_path.glob("*.o"))) == 2


def test_a_burst_that_fails_is_over(pipeline: CompiledPipeline) -> None:
    """The tables keep freeing entries that no packet uses, and only those."""
    machine = pipeline._context.machine
    with pytest.raises(TypeError):
        pipeline.ingress([Frame(1, bytearray(60))], 1)  # type: ignore[arg-type]
    assert machine.epoch % 2 == 0
    (placement,) = pipeline.ingress([Frame(1, b"\x00\x00\x00" + bytes(50))], 2)
    with pytest.raises(AttributeError):
        pipeline.egress([dequeued(placement.packet), dequeued(None)], 3)
    assert machine.epoch % 2 == 0
