"""The flight record of one process: what it keeps, when it is written, and PyTorch's own fields."""

from __future__ import annotations

import importlib.util
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataplane.clock import VirtualClock

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace  # type: ignore[attr-defined]

from dataplane.allreduce.torch import MillraceState, all_reduce
from dataplane.allreduce.torch.flight_recorder import Call, FlightRecorder, GroupName
from tests.dataplane.allreduce.torch.reducers import Doubling
from tests.waiting import comes_true

GROUP = GroupName("0:millrace", "default_pg", (0, 1))
CALL = Call.all_reduce(torch.ones(2, 3, dtype=torch.bfloat16))


@pytest.fixture
def single_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one worker, whose gloo collectives PyTorch records too."""
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "9")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "records" / "rank_"))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def read(path: Path) -> dict[str, Any]:
    record: dict[str, Any] = pickle.loads(path.read_bytes())
    return record


def test_a_record_keeps_the_last_collectives_and_their_states() -> None:
    recorder = FlightRecorder(GROUP, 1, capacity=3)
    for number in range(5):
        recorder.scheduled(number, CALL)
    recorder.started(0)  # no longer there
    recorder.completed(0)
    for number in (2, 3):
        recorder.started(number)
    recorder.completed(2)
    dump = recorder.dump()
    assert [entry["collective_seq_id"] for entry in dump["entries"]] == [3, 4, 5]
    assert [entry["state"] for entry in dump["entries"]] == ["completed", "started", "scheduled"]
    assert [entry["retired"] for entry in dump["entries"]] == [True, False, False]
    assert dump["entries"][0]["input_sizes"] == [[2, 3]]
    assert dump["entries"][0]["frames"][0]["name"] == "test_a_record_keeps_the_last_collectives_and_their_states"
    assert dump["pg_config"] == {"0:millrace": {"name": "0:millrace", "desc": "default_pg", "ranks": "[0, 1]"}}
    assert dump["pg_status"]["0:millrace"] == {
        "last_enqueued_collective": 5,
        "last_started_collective": 4,
        "last_completed_collective": 3,
    }


@pytest.mark.parametrize("size", ["0", "-5", "many"])
def test_size_zero_records_nothing_and_writes_no_file(size: str) -> None:
    recorder = FlightRecorder.from_environment({"TORCH_FR_BUFFER_SIZE": size}, GROUP, 0, 1.0)
    recorder.scheduled(0, CALL)
    recorder.started(0)
    recorder.completed(0)
    assert recorder.dump()["entries"] == []
    assert recorder.write() is None


@pytest.mark.usefixtures("single_worker")
def test_records_have_the_fields_of_pytorchs_own() -> None:
    dist.all_reduce(torch.ones(2, 3, dtype=torch.bfloat16))
    theirs = pickle.loads(_dump_fr_trace())
    recorder = FlightRecorder(GROUP, 0)
    recorder.scheduled(0, CALL)
    ours = recorder.dump()
    assert set(ours) == set(theirs)
    assert ours["version"] == theirs["version"]
    entry, other = ours["entries"][-1], theirs["entries"][-1]
    assert set(entry) == set(other)
    for name, value in other.items():
        assert entry[name] is None or value is None or type(entry[name]) is type(value), name
    for name in ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes", "profiling_name"):
        assert entry[name] == other[name]


@pytest.mark.usefixtures("single_worker")
def test_late_result_is_logged_once_and_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, reducer = VirtualClock(), Doubling(held=True)
    path = tmp_path / "records" / "rank_0"
    with MillraceState(reducer, clock=clock) as state:
        future = all_reduce(torch.ones(2, 3), state)
        reducer.wait_until_asked(1)
        assert not path.exists()
        clock.advance_to(6_000_000_000)
        assert comes_true(path.exists)
        clock.advance_to(12_000_000_000)
        reducer.let_go()
        assert future.wait().tolist() == [[2.0] * 3] * 2
    assert caplog.text.count("all-reduce 0 (all_reduce of [2, 3]) has had no result for 5 s") == 1
    assert caplog.text.count(f"flight record {path}: written for all-reduce 0") == 1
    assert [entry["state"] for entry in read(path)["entries"]] == ["started"]


@pytest.mark.usefixtures("single_worker")
def test_idle_worker_writes_its_record_when_another_asks(tmp_path: Path) -> None:
    path = tmp_path / "records" / "rank_0"
    with MillraceState(Doubling()) as state:
        assert state._agreement is not None
        state._agreement.ask_for_record(0)
        assert comes_true(path.exists)
        assert read(path)["entries"] == []
        assert state._agreement.asked_for_record(0) is None


@pytest.mark.usefixtures("single_worker")
def test_record_that_cannot_be_written_is_only_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_FR_DUMP_TEMP_FILE", str(tmp_path / "file" / "rank_"))
    with MillraceState(Doubling()) as state:
        assert state._agreement is not None
        with caplog.at_level(logging.WARNING, "millrace"):
            state._agreement.ask_for_record(0)
            assert comes_true(lambda: "flight record: " in caplog.text)
        assert all_reduce(torch.ones(1), state).wait().tolist() == [2.0]
