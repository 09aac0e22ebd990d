"""Hypothetical scenarios: loads as points, files, results against the open loop, and invalid input."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.balance.plants.scenario import Load, Scenario, answer, read_scenario
from controller.balance.rules.history import read_history
from dataplane.config import loads
from dataplane.errors import ConfigError

CLUSTERS = """
steps: 120
units:
- name: I
  start: {sub_units: 100}
  plant: {application: {ops_per_byte: 200000}, power: POWER}
  load: {points: [[0, 20000]]}
  limits: {frequency_high_mhz: 1100, precisions: [int8]}
  platform: {}
- name: II
  start: {sub_units: 100}
  plant: {application: {ops_per_byte: 800000}, power: POWER}
  load: {points: [[0, 20000]]}
  limits: {frequency_high_mhz: 1100, precisions: [int8]}
  platform: {}
""".replace("POWER", "{dynamic_w: 1, static_w: 0, idle_activity: 1, low_v: 1, high_v: 1}")


def test_load_is_held_or_interpolated_and_repeats() -> None:
    rng = np.random.default_rng(0)
    points = ((0.0, 10.0), (2.0, 30.0))
    assert Load(points=points).offered(4, 1.0, rng).tolist() == [10, 10, 30, 30]
    assert Load(points=points, lines=True).offered(4, 1.0, rng).tolist() == [10, 20, 30, 30]
    assert Load(points=points, repeat_s=3).offered(6, 1.0, rng).tolist() == [10, 10, 30, 10, 10, 30]
    assert np.std(Load(points=points, noise=0.2).offered(500, 1.0, rng)[2:]) == pytest.approx(6, rel=0.1)


def test_the_worked_example_as_a_scenario() -> None:
    """Compare the clusters after their levers have settled with the open loop, in steps of virtual time."""
    answered = answer(loads(CLUSTERS, Scenario))
    first, second = answered.trajectories
    assert (first.sub_units[-1], second.sub_units[-1], second.frequency_mhz[-1]) == (50, 150, 1100)
    assert first.work_tera[-1] + second.work_tera[-1] == pytest.approx(21_500)
    assert first.energy_j[-1] + second.energy_j[-1] == pytest.approx(215)
    assert answered.open_loop.work_tops == pytest.approx(15_000, rel=0.02)  # the queue fills first
    assert answered.open_loop.watts == pytest.approx(200)
    assert answered.open_loop.moves_per_minute == 0
    assert answered.together.work_tops / answered.open_loop.work_tops == pytest.approx(1.433, abs=0.03)
    assert answered.outcomes[0].figures is not None
    assert answered.outcomes[0].figures.settle_s is not None


def test_the_same_seed_gives_the_same_answer_and_another_another() -> None:
    text = CLUSTERS.replace("[[0, 20000]]", "[[0, 4000]], noise: 0.3")
    work = [answer(loads(f"seed: {seed}\n{text}", Scenario)).together.work_tops for seed in (1, 1, 2)]
    assert work[0] == work[1] != work[2]


def test_precisions_are_those_that_application_and_limits_allow() -> None:
    text = CLUSTERS.replace("precisions: [int8]", "precisions: [int4, int8]").replace(
        "ops_per_byte: 800000", "ops_per_byte: 8000000, precisions: [int8, fp16]"
    )
    _, second = answer(loads(text, Scenario)).trajectories
    assert set(second.precision) == {1}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("units: []", "at least one"),
        (CLUSTERS.replace("name: II", "name: I"), "duplicate name"),
        (CLUSTERS.replace("steps: 120", "steps: 600000"), "at most 1000000"),
        (CLUSTERS.replace("[[0, 20000]]", "[[1, 20000]]"), "the first must be at 0 s"),
        (CLUSTERS.replace("[[0, 20000]]", "[[0, 1], [5, 2], [5, 3]]"), "each must be later"),
        (CLUSTERS.replace("[[0, 20000]]", "[[0, .inf]]"), "<= 1000000000000"),
        (CLUSTERS.replace("platform: {}", "platform: {}\n  table: {}"), "set table or platform"),
        (CLUSTERS.replace("platform: {}", "plattform: {}"), "did you mean `platform`"),
        (CLUSTERS.replace("sub_units: 100", "sub_units: 0"), ">= 1"),
        (CLUSTERS.replace("frequency_high_mhz: 1100, ", ""), "limits lack frequency_high_mhz"),
        (CLUSTERS.replace("frequency_high_mhz: 1100", "frequency_high_mhz: 900"), "starts at 1000 MHz, outside"),
        (
            CLUSTERS.replace("frequency_high_mhz: 1100", "frequency_high_mhz: 1100, power_high_w: 250"),
            "limits: the model has no cap of power",
        ),
        (
            CLUSTERS.replace(
                "frequency_high_mhz: 1100", "frequency_high_mhz: 1100, concurrency_low: 2, concurrency_high: 4"
            ),
            "it starts at a concurrency of 1, outside its limits",
        ),
        (CLUSTERS.replace("precisions: [int8]", "sub_units_low: 101"), "100 sub-units, outside its limits"),
        (CLUSTERS.replace("steps: 120", "steps: 120\nstep_s: .nan"), ">= 1e-06"),
        (
            CLUSTERS.replace("{ops_per_byte: 200000}", "{precisions: [fp16]}, speeds: {fp16: 1}"),
            "plant.speeds lacks int8, the initial precision",
        ),
    ],
)
def test_a_scenario_that_cannot_be_is_refused_with_its_line(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "what.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem) as raised:
        read_scenario(tmp_path / "what.yaml")
    assert "what.yaml" in str(raised.value)


def test_whatif_command_prints_draws_and_writes_a_history(tmp_path: Path) -> None:
    (tmp_path / "what.yaml").write_text(CLUSTERS, encoding="utf-8")
    steps, picture = tmp_path / "steps.csv", tmp_path / "run.svg"
    arguments = ["balance", "whatif", str(tmp_path / "what.yaml"), "--write", str(steps), "--picture", str(picture)]
    result = CliRunner().invoke(app, [*arguments, "-f", "json"])
    assert result.exit_code == 0
    rows = {row["unit"]: row for row in json.loads(result.stdout)}
    assert list(rows) == ["I", "II", "all", "all, open loop"]
    assert rows["all"]["TOPS"] > rows["all, open loop"]["TOPS"]
    assert rows["all"]["settles s"] is None
    drawn = picture.read_text(encoding="utf-8")
    for label in ("error e", "output u", "sub-units", "clock (GHz)", "work (TOPS)", "dead band", "time (s)"):
        assert label in drawn
    assert "precision" not in drawn
    assert len(read_history(steps, "II")) == 120
    with steps.open(encoding="utf-8", newline="") as file:
        last = [row for row in csv.DictReader(file) if row["unit"] == "II"][-1]
    assert (last["sub_units"], last["frequency_mhz"], float(last["work_tera"])) == ("150", "1100.0", 16_500)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--picture", "run.gif"], "ends in .png or .svg"),
        (["--picture", "/nowhere/at/all.png"], "/nowhere/at/all.png: /nowhere/at is not a folder"),
        (["--write", "/nowhere/at/all.csv"], "/nowhere/at/all.csv: /nowhere/at is not a folder"),
        (["--write", "/"], "/: is a folder"),
    ],
)
def test_unwritable_output_is_reported_before_the_run(
    arguments: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "what.yaml").write_text(CLUSTERS.replace("steps: 120", "steps: 5"), encoding="utf-8")
    result = CliRunner().invoke(app, ["balance", "whatif", str(tmp_path / "what.yaml"), *arguments])
    assert result.exit_code
    assert not result.stdout
    assert problem in result.stderr
