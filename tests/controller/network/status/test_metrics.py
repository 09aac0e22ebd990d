"""Prometheus metrics of controller, path server and job service, and their alerting rules."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import Metric

from controller.network.aggregation.service import metrics as jobs
from controller.network.aggregation.service.messages import JobRow, MemberRow
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service import metrics as paths
from controller.network.status import metrics as status
from controller.network.status.values import ControllerStatus, SwitchProblem
from dataplane.metrics_server import MetricsServer, registry_of
from tests.waiting import HANG_S

DEPLOY = Path(__file__).parents[4] / "deploy/prometheus"
STATUS = ControllerStatus(2, ("s1",), (SwitchProblem("s2", "away"),), 7, 3, False, 1, None, 90)
JOB = JobRow(
    "resnet",
    1,
    "running",
    3,
    (MemberRow("h1", "working", 10**9), MemberRow("h2", "working", 2 * 10**9)),
    4,
    8,
    16,
    ("s1",),
    "",
    None,
)
ENDED = JobRow("old", None, "ended", 2, (), None, 8, 16, (), "done", 5)
PATHS = PathServerStatus(5, 10, 2, None, 3 * 10**9, {"rounds": 8}, None, True, 10**18, {}, 2)


def lines(metrics: list[Metric]) -> dict[str, float]:
    """Return samples by name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_a_controller_s_metrics() -> None:
    samples = lines(list(status.families(STATUS)))
    assert samples["millrace_controller_switch_right[('switch', 's1')]"] == 1
    assert samples["millrace_controller_switch_right[('switch', 's2')]"] == 0
    assert (samples["millrace_controller_settled"], samples["millrace_controller_writes_total"]) == (0, 90)


def test_jobs_that_have_ended_have_no_series() -> None:
    samples = lines(list(jobs.families([JOB, ENDED])))
    assert samples["millrace_jobs[('state', 'running')]"] == 1
    assert samples["millrace_job_workers[('name', 'resnet'), ('state', 'working')]"] == 2
    assert samples["millrace_job_silent_seconds[('name', 'resnet')]"] == 2
    assert not [name for name in samples if "old" in name]


def test_a_path_server_s_metrics_are_served_from_its_event_loop() -> None:
    async def scene() -> str:
        registry = registry_of(lambda: paths.families(PATHS))
        with MetricsServer(registry, "127.0.0.1", 0) as server:
            answer = await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{server.port}/metrics", timeout=20
            )
            with answer:
                text: str = answer.read().decode()
        return text

    text = asyncio.run(scene())
    assert "millrace_paths_feed_silent 1.0" in text
    assert "millrace_paths_pinned_flows 2.0" in text
    assert 'millrace_paths_counts_total{counter="rounds"} 8.0' in text
    assert "process_cpu_seconds_total" in text


def test_alerts_are_on_metrics_that_there_are() -> None:
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    named = {name for rule in rules for name in re.findall(r"millrace_\w+", rule["expr"])}
    families = [*status.families(STATUS), *jobs.families([JOB]), *paths.families(PATHS)]
    ours = {sample.name for family in families for sample in family.samples}
    of_the_collector = ("millrace_link_", "millrace_reports_", "millrace_events_", "millrace_collector_")
    assert {name for name in named - ours if not name.startswith(of_the_collector)} == set()
    assert {"millrace_controller_switch_right", "millrace_paths_feed_silent", "millrace_job_workers"} <= named & ours


def test_promtool_takes_the_rules() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH (Debian package prometheus)")
    for words in (("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")):
        done = subprocess.run(
            [promtool, *words], cwd=DEPLOY, capture_output=True, text=True, check=False, timeout=HANG_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
