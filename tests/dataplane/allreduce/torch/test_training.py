"""Four workers train with DistributedDataParallel over the reference switch, which loses packets and dies."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import HANG_S

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from tests.dataplane.allreduce.torch.dying_switch import Plan, Switch
from tests.dataplane.allreduce.torch.training import (
    DESERTED,
    DYING,
    FLIPPED,
    FORMATS,
    LOSSES,
    ROWS,
    SHORT,
    SINGLE,
    SPARSE,
    SPARSE_STEPS,
    single,
)

WORKERS = 4
ROOT = Path(__file__).parents[4]
Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train in every way within one run per process, as PyTorch starts slowly."""
    path = tmp_path_factory.mktemp("training")
    plans = {job: Plan(loss) for job, loss in LOSSES.items()}
    plans |= {SINGLE: Plan(), DYING: Plan(0.01, dies_after=75), SHORT: Plan(dies_after=6)}
    plans |= {DESERTED: Plan(), SPARSE: Plan(), FLIPPED: Plan(flips_at=75)}
    switch = Switch(plans, WORKERS)
    module = "tests.dataplane.allreduce.torch.training"
    command = [sys.executable, "-m", module, str(WORKERS), str(path), str(switch.port)]
    with (
        (path / "errors").open("w") as errors,
        subprocess.Popen(command, cwd=ROOT, stderr=errors, start_new_session=True) as training,
    ):
        try:
            failed = training.wait(timeout=HANG_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(training.pid, signal.SIGKILL)
            switch.close()
    assert failed == 0, (path / "errors").read_text()
    return path


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(WORKERS)]


@pytest.mark.parametrize("job", LOSSES)
def test_training_by_the_switch_is_that_by_gloo_whatever_is_lost(results: Results, job: int) -> None:
    for mine in results:
        assert not mine[f"job{job}_by_ring"]
        assert np.abs(mine[f"job{job}_parameters"] - mine["gloo_parameters"]).max() < 1e-6
        assert np.abs(mine[f"job{job}_losses"] - mine["gloo_losses"]).max() < 1e-6


@pytest.mark.parametrize(
    "what", [*(f"job{job}_parameters" for job in LOSSES), "dying_parameters", "flipped_parameters", *FORMATS]
)
def test_all_workers_have_the_same_to_the_bit(results: Results, what: str) -> None:
    for mine in results[1:]:
        assert np.array_equal(mine[what], results[0][what])


@pytest.mark.parametrize("kind", FORMATS)
def test_mean_error_is_within_the_bound_and_format_rounding(results: Results, kind: str) -> None:
    values = np.array([single(rank, kind).float().numpy() for rank in range(WORKERS)], np.float64)
    exact = values.mean(axis=0)
    bound = 2.0 ** (np.frexp(np.abs(values).max())[1] + 2 - 31)
    half_unit = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}[kind]
    assert (np.abs(results[0][kind] - exact) <= (bound + np.abs(exact) * half_unit) * (1 + 1e-6) + 2.0**-25).all()


@pytest.mark.parametrize("what", ["sparse", "sparse_by_ring"])
def test_sparse_gradients_train_as_by_gloo(results: Results, what: str) -> None:
    for mine in results:
        assert np.abs(mine[what] - mine["sparse_by_gloo"]).max() < 1e-6
        assert np.array_equal(mine[what], results[0][what])


def test_rows_that_nobody_has_are_not_sent(results: Results) -> None:
    rows, exponents, dense = WORKERS * 6, ROWS // 256, 4
    for mine in results:
        assert 0 < mine["sparse_sent"] <= SPARSE_STEPS * (rows + exponents + dense)
        assert mine["sparse_sent"] < SPARSE_STEPS * ROWS / 4


def test_an_empty_tensor_is_at_once_done(results: Results) -> None:
    assert results[0]["empty"].size == 0


def test_training_continues_by_ring_when_the_switch_dies(folder: Path, results: Results) -> None:
    for rank, mine in enumerate(results):
        assert np.abs(mine["dying_losses"] - mine["gloo_losses"]).max() < 1e-6
        lines = [
            line for line in (folder / f"{rank}.log").read_text().splitlines() if "got no result from 127.0.0.1" in line
        ]
        assert len(lines) >= 1
        assert "gloo's ring of workers 0, 1, 2, 3 is used, not the switch: worker" in lines[0]


def test_bit_flip_in_the_switch_never_reaches_the_weights(folder: Path, results: Results) -> None:
    assert sum(mine["flipped_corrupt"] for mine in results) > 0
    for rank, mine in enumerate(results):
        assert np.abs(mine["flipped_losses"] - mine["gloo_losses"]).max() < 1e-6
        assert np.abs(mine["flipped_parameters"] - mine["gloo_parameters"]).max() < 1e-6
        lines = [
            line for line in (folder / f"{rank}.log").read_text().splitlines() if "did not fit their check" in line
        ]
        assert len(lines) == 1
        assert "gloo's ring of workers 0, 1, 2, 3 is used, not the switch: worker" in lines[0]


def test_a_result_that_only_one_worker_has_becomes_that_of_all(results: Results) -> None:
    expected = np.repeat([[6.0 + 4 * at] for at in range(8)], 256, axis=1)
    for mine in results:
        assert np.array_equal(mine["short"], expected)


def test_the_ring_tells_a_sum_that_leaves_int32(results: Results) -> None:
    for mine in results:
        assert "all-reduce 0 overflowed int32" in str(mine["beyond"])
        assert mine["integers"].tolist() == [2**31 - 4] * 2


def test_a_job_without_cells_goes_by_the_ring_from_the_beginning(folder: Path, results: Results) -> None:
    assert np.array_equal(results[0]["ring_losses"], results[0]["gloo_losses"])
    assert "from all-reduce 0 on gloo's ring of workers" in (folder / "0.log").read_text()
    assert "the job has no cells" in (folder / "0.log").read_text()


def test_those_who_are_left_go_on_without_a_worker_that_died(folder: Path, results: Results) -> None:
    assert "deserted_parameters" not in results[3]
    for mine in results[:3]:
        assert np.array_equal(mine["deserted_parameters"], results[0]["deserted_parameters"])
        assert np.array_equal(mine["deserted_mean"], np.ones(3))
    assert "gloo's ring of workers 0, 1, 2 is used, not the switch" in (folder / "1.log").read_text()
