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
from controller.apiserver.resources import Metadata, ProbeResult, ProbeTask
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
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
