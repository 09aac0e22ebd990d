"""Measured kernels compute what they claim to: tables by torch and by DuckDB; files read back unchanged."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from controller.acceleration.calibration import DEFAULT, CalibrationError, load, save
from controller.acceleration.calibration.measuring.choosing import subjects
from controller.acceleration.calibration.measuring.measure import fit_of, runs_of, seconds_of
from controller.probing.kernels.loading import Checked, prepare
from controller.probing.values import Implementation, Library
from dataplane.topology.values import DeviceKind

HERE = "controller.acceleration.calibration.measuring"


@pytest.mark.parametrize("kind", ["filter", "project", "join", "aggregate", "sort"])
def test_torch_operators_equal_duckdb_ones(kind: str) -> None:
    pytest.importorskip("torch")
    by_torch = subjects(frozenset({DeviceKind.CPU}), frozenset({Library.TORCH}), is_quick=True)
    (subject,) = [candidate for candidate in by_torch if candidate.kind == kind]
    for sizes in subject.sizes[:4]:
        kernel = prepare(kind, subject.implementation, sizes, seed=3)
        assert kernel.accuracy(kernel.run(())) <= subject.tolerance


def test_subject_runs_at_all_sizes_and_is_fitted_by_its_clock() -> None:
    ticks = count(0, 1_000_000)
    chosen = subjects(frozenset({DeviceKind.CPU}), frozenset({Library.DUCKDB}), is_quick=True)
    (scan,) = [candidate for candidate in chosen if candidate.kind == "table-scan"]
    measured = runs_of(scan, lambda: next(ticks), is_quick=True)
    assert [run.seconds for run in measured.runs] == [1e-3] * 6
    assert fit_of(measured).coefficients == pytest.approx((1e-3, 0.0))


def test_an_output_that_is_wrong_is_an_error() -> None:
    class Wrong:
        def run(self, inputs: object) -> float:
            return 0.0

        def accuracy(self, output: object) -> float:
            return 0.5

    with pytest.raises(CalibrationError, match=r"its output is off by 0\.5"):
        seconds_of("k", Checked("k", Wrong()), lambda: 0, budget_s=1.0, tolerance=1e-9)


def test_without_a_gpu_nothing_is_measured_on_one() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("has a GPU")
    code = Implementation(DeviceKind.GPU, Library.TORCH, f"{HERE}.torch_tables:sort_cuda")
    with pytest.raises(Exception, match="torch finds no GPU"):
        prepare("sort", code, {"rows": 10, "row_bytes": 8}, seed=0)


@pytest.mark.parametrize("name", ["c.yaml", "c.json"])
def test_files_read_back_as_they_were(name: str, tmp_path: Path) -> None:
    save(DEFAULT, tmp_path / name)
    loaded = load(tmp_path / name)
    assert (loaded.rates, loaded.fits, loaded.machine) == (DEFAULT.rates, DEFAULT.fits, DEFAULT.machine)
    with pytest.raises(CalibrationError, match="No such file"):
        save(DEFAULT, tmp_path / "no" / name)
