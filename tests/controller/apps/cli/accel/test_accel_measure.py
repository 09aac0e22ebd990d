"""`millrace accel measure`: a calibration of this machine in a file, and one-line errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.acceleration.calibration import load
from controller.apps.cli import main
from controller.cluster.operators import Operator
from dataplane.errors import ConfigError


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["millrace", "accel", "measure", *words])
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_duckdb_measurements_give_a_calibration_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "here.yaml"
    assert run(monkeypatch, "--quick", "--library", "duckdb", "--out", str(file)) == 0
    assert "wrote" in capsys.readouterr().out
    calibration = load(file)
    kinds = {fit.kind for fit in calibration.fits}
    assert kinds == {"filter", "project", "join", "aggregate", "sort", "top-n", "table-scan"}
    join = {"left_rows": 10**5, "left_row_bytes": 16, "right_rows": 10**4, "right_row_bytes": 16}
    estimate = calibration.t_of(Operator.of("j", "join", join | {"out_rows": 10**5, "out_row_bytes": 24}))
    assert 0 < (estimate.seconds or 0) < 10
    assert calibration.accelerator_of() is None  # the GPU is unknown: settings state it


def test_unwritable_file_is_refused_before_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--out", str(tmp_path / "no" / "c.yaml")) == 1
    assert "no such folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("residual: ", "residue: "), "unknown key"),
        (("device: cpu", "device: cpv"), "cpv"),
        (("cores: 2", "cores: 0"), "0 cores"),
        (("coefficients: [1.0,", "coefficients: [-1.0,"), "fits[0].coefficients"),
        (("runs: 9", "runs: 1"), "fits[0].runs"),
        (("value: 5.0", "value: 0.0"), "memory_bytes_per_s.value: 0.0"),
    ],
)
def test_a_calibration_file_is_strict_and_names_file_and_key(
    change: tuple[str, str], message: str, tmp_path: Path
) -> None:
    text = """\
millrace: 1
machine: m
cores: 2
devices: [{device: cpu, memory_bytes_per_s: {value: 5.0}}]
fits:
- {device: cpu, kind: table-scan, features: [constant, input_bytes], coefficients: [1.0, 2.0], residual: 0.1, runs: 9,
   covariance: [[0.1, 0.0], [0.0, 0.1]], least: [1.0, 1.0], most: [1.0, 9.0]}
"""
    file = tmp_path / "c.yaml"
    file.write_text(text)
    assert load(file).fits[0].degrees == 7
    file.write_text(text.replace(*change))
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert str(file) in str(raised.value)
    assert message in str(raised.value)
