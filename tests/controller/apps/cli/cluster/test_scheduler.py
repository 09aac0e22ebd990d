"""`millrace scheduler` as a user types it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apiserver.resources.decision import Outcome
from controller.apps.cli.app import app
from controller.common.errors import SchedulerError
from dataplane.errors import MillraceError
from tests.controller.scheduling.serving.conftest import Cluster, Play, placed_name, play

__all__ = ["play"]

TOPOLOGY = """
millrace: 1
name: racks
defaults: {access: {rate: 10 Gbit/s, delay: 1 us}}
switches: [{name: s1}]
hosts:
  - {name: h1, switch: s1, cores: 8, memory: [{kind: dram, capacity: 64 GiB}]}
  - {name: h2, switch: s1, cores: 8, memory: [{kind: dram, capacity: 64 GiB}]}
links: []
"""


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["scheduler", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def racks(tmp_path: Path) -> str:
    (tmp_path / "racks.yaml").write_text(TOPOLOGY)
    return str(tmp_path / "racks.yaml")


def test_simulate(racks: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("profiles: [{name: packed, scores: [{policy: most-used}]}]\n")
    trace = tmp_path / "trace.json"
    work = ("-w", "batch:tasks=20,gpu_share=0", "-w", "layers:layers=2,width=3,graphs=2,cpu_only_share=1")
    options = ("--settings", str(tmp_path / "s.yaml"), "--profile", "packed", "--trace", str(trace), "-f", "json")
    rows = {row["what"]: row["value"] for row in json.loads(run("simulate", "--topology", racks, *work, *options))}
    assert rows["finished"] == 32
    assert rows["transfers"] > 0
    assert len(json.loads(trace.read_text())) == 32
    again = {row["what"]: row["value"] for row in json.loads(run("simulate", "--topology", racks, *work, *options))}
    assert again == rows


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-w", "batch:tasks=2"), "either --topology or --nodes"),
        (("--topology", "abilene", "-w", "batch:tasks=2"), "topology abilene states no host's cores"),
        (("--topology", "R", "-w", "nothing"), "workload 'nothing' must begin with one of swf:"),
        (("--topology", "R", "-w", "batch:tasks"), "'tasks' is not key=value"),
        (("--topology", "R", "-w", "batch:taks=2"), "workload batch: unknown key 'taks'"),
        (("--topology", "R", "-w", "batch:tasks=two"), "workload batch: Expected `int`"),
        (("--topology", "R", "-w", "batch:tasks=0"), "invalid batch: tasks must be between 1 and 10000000"),
        (("--topology", "R", "-w", f"batch:tasks=1{'0' * 30}"), "invalid batch: tasks must be between"),
        (("--topology", "R", "-w", f"batch:tasks=1{'0' * 400}"), "tasks must be between 1 and 10000000"),
        (("--topology", "R", "-w", "batch:tasks=9,mean_s=1e300"), "invalid batch: mean_s must be between"),
        (("--topology", "R", "-w", "batch:tasks=9,rate_hz=nan"), "invalid batch: rate_hz must be between"),
        (("--topology", "R", "-w", "batch:tasks=9,most_cores=0"), "invalid batch: most_cores must be between"),
        (("--topology", "R", "-w", "batch:tasks=9,rate_hz=1e-9"), "the workload runs for more than 4611686018 s"),
        (("--topology", "R", "-w", "layers:graphs=2,apart_s=1e300"), "invalid layers: apart_s must be between"),
        (("--topology", "R", "-w", "swf:/no/file"), "/no/file: No such file"),
        (
            ("--topology", "R", "-w", "batch:tasks=2", "--order", "lifo"),
            "--order 'lifo' is not one of strict",
        ),
        (("--topology", "R", "-w", "batch:tasks=2", "--profile", "x"), "unknown profile 'x'"),
        (("--topology", "R", "-w", "batch:tasks=2", "--trace", "t.txt"), "t.txt: the name of a trace file must end in"),
    ],
)
def test_simulate_refuses_invalid_input(racks: str, arguments: tuple[str, ...], words: str) -> None:
    named = [racks if argument == "R" else argument for argument in arguments]
    with pytest.raises(MillraceError) as caught:
        run("simulate", *named)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_log_has_beside_jobs_is_shown_alike(racks: str, tmp_path: Path) -> None:
    log = tmp_path / "log.swf"
    log.write_text(
        "2 9 -1 10.5 4 -1 -1 4 -1 -1 1\n1 5 -1 10 4 -1 -1 4 -1 -1 1\n1 5 -1 9 4 -1 -1 4 -1 -1 2\n"
        "3 6 -1 -1 -1 -1 -1 4 -1 -1 5\n"
    )
    left_out = {"cancelled before it began": 1, "a further line of its job, such as a partial execution": 1}
    shown = json.loads(run("simulate", "--topology", racks, "-w", f"swf:{log}", "-f", "json"))
    rows = {row["what"]: row["value"] for row in shown}
    assert (rows["finished"], rows["left out"]) == (2, 2)
    assert {name.removeprefix("left out: "): rows[name] for name in rows if "left out: " in name} == left_out
    compared = CliRunner().invoke(app, ["scheduler", "compare", f"swf:{log}"], catch_exceptions=False)
    assert compared.exit_code == 0
    for reason, count in left_out.items():
        assert f"log.swf: left out {count}: {reason}" in compared.stderr


def test_a_policy_that_is_not_there(racks: str, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("profiles: [{scores: [{policy: fastest}]}]\n")
    with pytest.raises(SchedulerError, match="profile default: unknown policy 'fastest'"):
        run("simulate", "--topology", racks, "-w", "batch:tasks=2", "--settings", str(tmp_path / "s.yaml"))


def test_explain(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        await cluster.add_node("h1", cores=1)
        async with cluster.scheduling():
            await cluster.add_pod("first")
            await cluster.pods_when(placed_name("first"))
            await cluster.add_pod("second")
            await cluster.decision_about("second", Outcome.REFUSED)
        shown = await asyncio.to_thread(run, "explain", "first", "--api", cluster.socket)
        assert "first: bound: bound by" in shown
        assert "of it stays free" in shown
        refused = await asyncio.to_thread(run, "explain", "second", "--api", cluster.socket, "-f", "json")
        assert json.loads(refused) == [
            {
                "node": "h1",
                "points": None,
                "policy": "fits",
                "reason": "cpu: 1000 thousandths of cores wanted, 0 free",
            }
        ]

    play(act)
