"""`millrace probe results`, `efficiency` and `hours`, on a server with probe results."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.resources import Centre, Metadata, ProbeResult, ProbeTask, ScoringPolicy, Task
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.apiserver.resources.task import UnitChoice
from controller.probing.evaluation import load_policy
from controller.probing.files import to_spec
from controller.probing.values import Implementation, KernelUse, Library
from controller.probing.values import ProbeTask as Probe
from dataplane.topology.values import DeviceKind
from tests.controller.apps.cli.conftest import Run

S = 1_000_000_000
NOISE = np.random.default_rng(16)


def noisy(seconds: float, number: int = 5) -> tuple[float, ...]:
    return tuple(float(seconds * np.exp(0.01 * NOISE.standard_normal())) for _ in range(number))


def write(client: SyncApiClient, name: str, probe: str, runs: tuple[ProbeRun, ...]) -> None:
    spec = ProbeResultSpec(probe=probe, centre="east", task_type="solve", unit="small")
    made = client.of(ProbeResult).create(ProbeResult(metadata=Metadata(name=name), spec=spec))
    status = ProbeResultStatus(runs=runs)
    client.of(ProbeResult).replace_status(ProbeResult(metadata=made.metadata, spec=spec, status=status))


@pytest.fixture
def client(served: Place) -> Iterator[SyncApiClient]:
    with SyncApiClient(served) as api:
        yield api


def test_results_are_shown_scored_and_as_estimates(client: SyncApiClient, run: Run, tmp_path: Path) -> None:
    write(client, "r1", "p", (ProbeRun(units=1, run_times_s=(1.0, 1.1, 0.9, 1.0, 7.0), accuracies=(1e-13,)),))
    write(client, "r2", "p", (ProbeRun(units=2, run_times_s=(), outcome="hang", problem="gemm: 9 s"),))
    policy = tmp_path / "policy.yaml"
    policy.write_text("run_time_s: {intervals: [{below: 2, points: 10}, {from: 2, points: 1}]}\n")
    (first, second) = json.loads(run(f"probe results --policy {policy} -f json")[0])
    assert (first["units"], first["run time s"], first["score"], first["error"]) == (1, 1.0, 10.0, 1e-13)
    assert first["notes"] == "run-time-s: repetition 5 left out: 7, the median is 1"
    assert first["policy"] == f"default@{load_policy(policy).digest}"
    assert (second["outcome"], second["score"]) == ("hang", None)
    assert second["notes"].startswith("gemm: 9 s; run left out: hang")
    assert json.loads(run("probe results --centre west -f json")[0]) == []
    (estimate,) = [row for row in json.loads(run("probe results --estimates -f json")[0]) if row["units"] == 1]
    assert (estimate["basis"], estimate["seconds"]) == ("none", None)
    assert estimate["reasons"] == "there is no Centre east"
    policy.write_text("run_time_s: {intervals: [{below: 2, points: 10}, {from: 3, points: 1}]}\n")
    assert run(f"probe results --policy {policy}")[1] == (
        f"millrace: {policy}:1: run_time_s: intervals[1].from: begins at 3, the one before ends below 2: a gap\n"
    )


def test_a_scoring_policy_is_applied_shown_and_deleted(client: SyncApiClient, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("run_time_s: {intervals: [{below: 2, points: 10}, {from: 2, points: 1}]}\n")
    digest = load_policy(file).digest
    assert run("probe policy show")[1] == (
        "millrace: there is no ScoringPolicy default: task schedulers use that of their settings\n"
    )
    assert run(f"probe policy apply {file}")[0] == f"scoring policy default@{digest} is created\n"
    assert run(f"probe policy apply {file}")[0] == f"scoring policy default@{digest} is unchanged\n"
    # A wrong file changes nothing, and is refused by line and key.
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("run_time_s:\n  wieght: 1\n  intervals: [{points: 1}]\n")
    assert run(f"probe policy apply {wrong}")[1] == (
        f"millrace: {wrong}:2: run_time_s.wieght: unknown key; did you mean `weight`? (known: intervals, weight)\n"
    )
    out, err = run("probe policy show -f json")
    assert (json.loads(out)["name"], err) == ("default", "")
    rows, err = run("probe policy show -f csv")
    assert rows.splitlines()[1:] == ["run-time-s,1.0,0.0,2.0,10.0", "run-time-s,1.0,2.0,,1.0"]
    assert err.startswith(f"default@{digest}, by ")
    # The printed file is one to apply.
    file.write_text(run("probe policy show -o yaml")[0].replace("points: 10.0", "points: 11.0"))
    changed = load_policy(file).digest
    assert run(f"probe policy apply {file}")[0] == f"scoring policy default@{changed} replaces default@{digest}\n"
    assert client.of(ScoringPolicy).get("default").spec.digest == changed
    assert run("probe policy delete default")[0] == "scoring policy default is deleted\n"
    assert client.of(ScoringPolicy).list().items == ()


def test_a_sent_probe_states_counts_or_leaves_them_open(client: SyncApiClient, run: Run) -> None:
    code = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
    use = KernelUse("gemm", "dgemm", 1, (), 1, 1, code, 1e-6)
    client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name="p"), spec=to_spec(Probe("p", "hpc", (use,)))))
    centre = client.of(Centre).create(Centre(metadata=Metadata(name="east")))
    status = CentreStatus(ready=True, units=(UnitType(name="core", count=4),))
    client.of(Centre).replace_status(Centre(metadata=centre.metadata, status=status))
    for words, choice, unit, units in (
        ("", UnitChoice.CONFIGURATION, None, (1,)),
        ("--choose centre", UnitChoice.CENTRE, None, ()),
        ("--choose centre --unit core", UnitChoice.CENTRE, "core", ()),
        ("--choose centre --units 2,1", UnitChoice.CENTRE, None, (1, 2)),
        ("--choose centre --unit core --units 2", UnitChoice.USER, "core", (2,)),
    ):
        name = run(f"probe send p {words}")[0].split()[1]
        spec = client.of(Task).get(name).spec
        assert (spec.choice, spec.unit, spec.units) == (choice, unit, units), words
        assert spec.leaves_count is (not units)


def test_efficiency_gives_the_useful_number_of_units(client: SyncApiClient, run: Run, tmp_path: Path) -> None:
    counts = (1, 2, 4, 8, 16, 32)
    write(client, "r1", "p", tuple(ProbeRun(units=n, run_times_s=noisy(1 / min(n, 8))) for n in counts))
    write(client, "lie", "p", (ProbeRun(units=1, run_times_s=(0.1, 0.1, 0.1)),))
    picture = tmp_path / "efficiency.png"
    out, err = run(f"probe efficiency p --picture {picture} -f csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [int(row["units"]) for row in rows] == list(counts)
    assert float(rows[3]["efficiency"]) == pytest.approx(1, abs=0.05)
    assert err.startswith("lie left out: 3 repetitions on 1 units take the same 0.1 s")
    err = err.split("\n", 1)[1]
    assert err.startswith("east, small: threshold 8: speed flattens at ")
    assert picture.stat().st_size > 10_000
    assert run("probe efficiency q")[1] == "no result of q in the last 30 days\n"
    assert "ends in .png or .svg" in run(f"probe efficiency p --picture {tmp_path}/x.pdf -f csv")[1]


def test_hours_tell_the_network_from_computing(client: SyncApiClient, run: Run, tmp_path: Path) -> None:
    code = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
    uses = tuple(
        KernelUse(name, kernel, 1, (), 1, 1, code, 1e-6)
        for name, kernel in (("pull", "network-pull"), ("gemm", "dgemm"))
    )
    client.of(ProbeTask).create(ProbeTask(metadata=Metadata(name="p"), spec=to_spec(Probe("p", "network", uses))))
    now_ns = time.time_ns()
    for number in range(48):
        ago = 48 - number
        (pull,), (gemm,) = noisy(0.5 if ago > 12 else 1.5, 1), noisy(1.0, 1)
        runs = ProbeRun(
            units=1,
            run_times_s=(pull + gemm,),
            started_ns=now_ns - ago * 1800 * S,
            kernels_s={"pull": (pull,), "gemm": (gemm,)},
        )
        write(client, f"r{number}", "p", (runs,))
    picture = tmp_path / "hours.svg"
    out, err = run(f"probe hours east --picture {picture} -f json")
    states = [hour["state"] for hour in json.loads(out)]
    assert states.count("slow network") in {5, 6, 7}
    assert "unknown" not in states
    lines = err.splitlines()
    assert "runs take 1.6" in lines[0]
    assert lines[0].endswith("from here on: network")
    assert lines[1].startswith("now slow network: by the last 3 measurements: network kernels take")
    assert picture.read_text().startswith("<?xml")
    assert "centre west" not in err
    assert run("probe hours west")[1] == "no result of any probe at west in the last 7 days\n"
    assert "--history, --topology and --from require each other" in run("probe hours east --history x")[1]
