"""The backend millrace against gloo: collectives, DistributedDataParallel, fully_shard, groups, and a hang's record."""

from __future__ import annotations

import gc
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import AllReduceError
from tests.waiting import HANG_S

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist
from torch.distributed.flight_recorder import fr_trace

from dataplane.allreduce.torch import JobOptions
from dataplane.allreduce.torch.group.packing import Parts
from tests.dataplane.allreduce.torch.collectives import COPIED, DEFAULT, DESERTED, SECOND, SUMMED, TRAININGS
from tests.dataplane.allreduce.torch.dying_switch import Plan, Switch

WORLD = 3
ROOT = Path(__file__).parents[4]
TOLERANCES = {torch.float32: 2.0**-21, torch.float64: 0.0, torch.float16: 2.0**-9, torch.bfloat16: 2.0**-6}
"""Largest difference from gloo's sums, relative to the largest value: gloo adds halves in their own format."""
EXACT = [f"{what}_{kind}" for what in ("broadcast", "all_gather") for kind in COPIED]
EXACT += ["all_gather_single", "all_gather_coalesced", "broadcast_of_nothing", "sum_of_nothing", "objects"]
HANDED_ON = ["all_to_all_single", "scatter", "gather", "received", "sum_float64", "max_int64"]
NEAR = [name for name in SUMMED if name not in HANDED_ON]
NEAR += ["reduce", "all_reduce_coalesced", "reduce_scatter_single", "reduce_scatter_coalesced", "reduce_scatter"]
NEAR += ["sum_sparse", "tensor_parallel", "fully_shard"]
Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run everything in one set of processes, as PyTorch starts slowly."""
    path = tmp_path_factory.mktemp("collectives")
    switch = Switch({DEFAULT: Plan(), SECOND: Plan(), DESERTED: Plan()}, WORLD)
    module = "tests.dataplane.allreduce.torch.collectives"
    command = [sys.executable, "-m", module, str(WORLD), str(path), str(switch.port)]
    with (
        (path / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stderr=errors, start_new_session=True) as workers,
    ):
        try:
            failed = workers.wait(timeout=HANG_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(workers.pid, signal.SIGKILL)
            switch.close()
    assert failed == 0, (path / "errors").read_text()
    return path


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from tensors(each)


def is_near(mine: Any, other: Any) -> bool:
    pairs = list(zip(tensors(mine), tensors(other), strict=True))
    return all(
        a.dtype == b.dtype
        and a.shape == b.shape
        and bool(((a - b).abs() <= TOLERANCES.get(a.dtype, 0.0) * max(1.0, float(b.abs().max()))).all())
        for a, b in pairs
        if b.numel()
    )


def is_same(mine: Any, other: Any) -> bool:
    pairs = zip(tensors(mine), tensors(other), strict=True)
    return all(a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes() for a, b in pairs)


@pytest.mark.parametrize("name", NEAR)
def test_sums_by_the_backend_are_those_by_gloo(results: Results, name: str) -> None:
    for mine in results:
        assert is_near(mine["millrace"][name], mine["gloo"][name])


@pytest.mark.parametrize("name", EXACT + HANDED_ON)
def test_copies_and_collectives_handed_on_have_gloos_bits(results: Results, name: str) -> None:
    given = [mine for mine in results if name in mine["gloo"]]
    assert given
    for mine in given:
        if name == "objects":
            assert mine["millrace"][name] == [{"rank": rank} for rank in range(WORLD)]
        else:
            assert is_same(as_plain(mine["millrace"][name]), as_plain(mine["gloo"][name]))


def as_plain(value: Any) -> list[torch.Tensor]:
    """Return tensors in formats that numpy has."""
    return [each.view(torch.int16) if each.dtype == torch.bfloat16 else each for each in tensors(value)]


@pytest.mark.parametrize("way", ["millrace", "hook"])
@pytest.mark.parametrize("training", TRAININGS)
def test_trainings_are_those_by_gloo(results: Results, training: str, way: str) -> None:
    for mine in results:
        assert is_near(mine[way][training], mine["gloo"][training])
        assert is_same(as_plain(mine[way][training]), as_plain(results[0][way][training]))


def test_collectives_went_over_the_switch(results: Results) -> None:
    for mine in results:
        assert not mine["by_ring"]
        calls: Counter[str] = Counter(mine["calls"])
        names = {"all_reduce", "broadcast", "all_gather", "_all_gather_base", "_reduce_scatter_base", "reduce_scatter"}
        assert set(calls) == {f"gloo:{name}" for name in names | {"allreduce_coalesced", "reduce", "barrier"}}
        layers, steps, whole = 2, 3, 4
        assert calls["gloo:_all_gather_base"] >= layers * steps + whole
        assert calls["gloo:_reduce_scatter_base"] >= layers * steps + 1


def test_log_names_once_what_does_not_go_over_the_switch(folder: Path) -> None:
    log = (folder / "0.log").read_text()
    for what in (
        "allreduce (SUM) of torch.float64",
        "allreduce (MAX) of torch.int64",
        "alltoall_base of torch.float32",
        "scatter of torch.float32",
        "gather of torch.float32",
        "send of torch.float32",
    ):
        assert log.count(f"group 0: {what} goes to gloo, not over the switch") == 1
    assert log.count("of 2: no job is stated for it, so it uses gloo or NCCL, not the switch") == 1


def test_other_groups_use_their_own_job_or_gloo(results: Results) -> None:
    assert [mine["second"].tolist() for mine in results] == [[3.0] * 3] * WORLD
    assert [mine["few"].tolist() for mine in results[:2]] == [[2.0] * 3] * 2


def test_group_without_a_dead_worker_says_whose_values_miss(results: Results) -> None:
    for mine in results[:2]:
        assert mine["deserted"]["mean"].tolist() == [0.5] * 3
        for name in ("broadcast", "all_gather"):
            assert mine["deserted"][name] == "worker 2 of the group left the job before it gave its values"


def test_pytorchs_analyser_names_the_rank_that_hangs(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        fr_trace.main([str(folder / "records"), "-o", str(tmp_path / "db")])
    finally:
        gc.enable()  # the analyser switches it off
    _, database = pickle.loads((tmp_path / "db").read_bytes())
    first, last = database.collectives
    assert first.pass_check
    assert (first.collective_name, first.collective_state, first.missing_ranks) == (
        "gloo:all_reduce",
        "completed",
        None,
    )
    assert (last.input_sizes, last.collective_state, last.missing_ranks) == ([[9]], "started", {0})
    assert [frame["name"] for frame in last.collective_frames].count("hang") == 1
    capsys.readouterr()


def test_part_without_its_worker_is_never_taken_for_zeros() -> None:
    parts = Parts((0, 1, 2), 5)
    vector = parts.pack(0, torch.arange(5, dtype=torch.uint8)) + parts.pack(2, torch.ones(5, dtype=torch.uint8))
    with pytest.raises(AllReduceError, match="worker 1 of the group left"):
        parts.unpack(vector, [torch.empty(5, dtype=torch.uint8) for _ in range(3)])


def test_default_group_without_a_job_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MILLRACE_JOB", "MILLRACE_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MILLRACE_JOB_SERVICE", "unix:jobs.sock")
    with pytest.raises(AllReduceError, match=r"pg_options=JobOptions\(\.\.\.\) nor MILLRACE_JOB, MILLRACE_NODE"):
        dist.init_process_group("millrace", store=dist.HashStore(), rank=0, world_size=1)
    environment = {"MILLRACE_JOB_SERVICE": "unix:jobs.sock", "MILLRACE_JOB": "resnet", "MILLRACE_NODE": "h1"}
    assert JobOptions.from_environment(environment) == JobOptions("unix:jobs.sock", "resnet", "h1")
    with pytest.raises(AllReduceError, match="pg_options of backend millrace: 7 is not JobOptions"):
        dist.init_process_group("millrace", store=dist.HashStore(), rank=0, world_size=1, pg_options=7)
    assert not dist.is_initialized()
