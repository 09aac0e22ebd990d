"""Metrics of a centre's agent, scraped like Prometheus does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from controller.apiserver.resources import Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.task import TaskPhase
from controller.workloads.centres.deciding import Cause
from controller.workloads.centres.ends import TaskEnds
from controller.workloads.centres.engines.base import JobMark, JobPhase, JobState
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.learning import Learner
from controller.workloads.centres.logs.kept import KeptOutputs
from controller.workloads.centres.metrics import Metrics
from controller.workloads.centres.process import serve
from controller.workloads.centres.settings import MetricsSettings
from dataplane.metrics_server import MetricsServer
from tests.controller.workloads.centres.centre_world import CentreWorld, play_centre, probe, script
from tests.waiting import until

Figures = dict[tuple[str, ...], float]
S = 10**9


def figures_in(text: str) -> Figures:
    """Return samples by name and label values, ordered by label name."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


async def scraped(url: str) -> Figures:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url, timeout=10)
    assert answer.status_code == 200
    return figures_in(answer.text)


async def scraped_when(url: str, holds: Callable[[Figures], bool]) -> Figures:
    """Return the samples once a condition holds."""
    figures: Figures = {}

    async def do_hold() -> bool:
        nonlocal figures
        figures = await scraped(url)
        return holds(figures)

    await until(do_hold, lambda: figures, poll_s=0.02)
    return figures


@asynccontextmanager
async def agent_of(world: CentreWorld) -> AsyncIterator[str]:
    """Run an agent with metrics on any port; yield their URL from its ready line."""
    lines: list[str] = []
    stop, settings = asyncio.Event(), replace(world.settings, metrics=MetricsSettings(port=0))
    running = asyncio.create_task(serve(settings, stop, on_ready=lines.append))
    try:
        await world.centre()
        yield lines[0].rpartition("metrics at ")[2]
    finally:
        stop.set()
        await running


def test_units_jobs_ends_refusals_and_the_reports_age_are_served(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with agent_of(world) as url:
            assert url.startswith("http://127.0.0.1:")
            await world.run("good", script("true"))
            await world.run("bad", script("exit 3"))
            await world.run("strange", probe("nowhere"))
            await world.submit("long", script("while [ ! -e go ]; do sleep 0.02; done"))
            await world.until("long", TaskPhase.RUNNING)
            samples = await scraped_when(url, lambda figures: figures["millrace_centre_jobs", "task", "running"] == 1)
            assert samples["millrace_centre_ready",] == 1
            units = {state: samples["millrace_centre_units", state, "core"] for state in ("held", "free", "others")}
            assert units == {"held": 1, "free": 0, "others": 0}
            assert samples["millrace_centre_jobs_begun_total", "task"] == 3
            assert samples["millrace_centre_jobs_begun_total", "probe"] == 0
            assert samples["millrace_centre_tasks_ended_total", "task", "succeeded"] == 1
            assert samples["millrace_centre_tasks_ended_total", "task", "failed"] == 1
            assert samples["millrace_centre_tasks_given_back_total", "no-probe-task", "probe"] == 1
            assert samples["millrace_centre_drops_total", "completion"] == 0
            assert 0 <= samples["millrace_centre_report_age_seconds",] < 10
            (next((tmp_path / "state/jobs").glob("*long*")) / "go").touch()
            await world.until("long", TaskPhase.SUCCEEDED)
            await scraped_when(url, lambda figures: figures["millrace_centre_units", "free", "core"] == 1)

    play_centre(tmp_path, act)


def test_api_outage_counts_failures_and_ages_the_report(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with agent_of(world) as url:
            # On a busy machine earlier answers may have been late.
            failures = ("millrace_centre_failures_total", "report")
            before = (await scraped(url))[failures]
            world.served.stop.set()
            samples = await scraped_when(url, lambda figures: figures[failures] >= before + 2)
            assert samples["millrace_centre_report_age_seconds",] > 0.2

    play_centre(tmp_path, act)


def test_end_of_a_redispatched_task_is_a_named_drop(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        async with agent_of(world):
            done = await world.run("done", script("true"))
        metrics, folder = Metrics(lambda: 0), CentreFolder(tmp_path / "other", "c1")
        ends = TaskEnds(
            world.client,
            world.settings,
            folder.jobs,
            learner=Learner(folder),
            outputs=KeptOutputs(folder.outputs),
            metrics=metrics,
        )
        task: Task = await world.client.of(Task).get(done.metadata.name)
        late = replace(task, status=replace(task.status, epoch=task.status.epoch + 1))
        await ends.give_back(late, TaskPhase.FAILED, "too late", Cause.UNFIT)
        with MetricsServer(metrics.registry, "127.0.0.1", 0) as server:
            figures = await scraped(f"http://127.0.0.1:{server.port}/metrics")
        assert figures["millrace_centre_drops_total", "completion"] == 1
        assert not sum(count for name, count in figures.items() if name[0] == "millrace_centre_tasks_given_back_total")
        assert ("millrace_centre_report_age_seconds",) not in figures, "there was no report"

    play_centre(tmp_path, act)


def kept_in(metrics: Metrics) -> Figures:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
    }


def test_units_are_held_by_our_jobs_taken_by_others_or_free() -> None:
    def job(task: str, phase: JobPhase, units: int, *, is_probe: bool = False) -> JobState:
        return JobState(id=task, mark=JobMark("c1", task, "u", 1, is_probe), phase=phase, unit="core", units=units)

    now_ns = [0]
    metrics = Metrics(lambda: now_ns[0])
    metrics.reported()
    now_ns[0] = 7 * S
    jobs = (
        job("a", JobPhase.RUNNING, 2),
        job("b", JobPhase.QUEUED, 4),
        job("c", JobPhase.FAILED, 1, is_probe=True),
        job("trial", JobPhase.RUNNING, 1, is_probe=True),
    )
    metrics.stands((UnitType(name="core", count=10, free=6),), jobs, {"trial"})
    figures = kept_in(metrics)
    assert [figures["millrace_centre_units", "core", state] for state in ("held", "free", "others")] == [3, 3, 4]
    assert figures["millrace_centre_jobs", "task", "running"] == 1
    assert figures["millrace_centre_jobs", "task", "queued"] == 1
    assert figures["millrace_centre_jobs", "probe", "failed"] == 1
    assert figures["millrace_centre_jobs", "trial", "running"] == 1
    assert figures["millrace_centre_ready",] == 0
    assert figures["millrace_centre_report_age_seconds",] == 7
    metrics.is_away()
    unknown = kept_in(metrics)
    assert not [name for name, *_ in unknown if name in ("millrace_centre_units", "millrace_centre_jobs")]
    assert unknown["millrace_centre_ready",] == 0


def test_metrics_that_cannot_listen_are_one_clear_line(tmp_path: Path) -> None:
    async def act(world: CentreWorld) -> None:
        with MetricsServer(Metrics(lambda: 0).registry, "127.0.0.1", 0) as taken:
            settings = replace(world.settings, metrics=MetricsSettings(port=taken.port))
            with pytest.raises(CentreError, match=rf"^metrics at 127.0.0.1:{taken.port}: Address already in use$"):
                await serve(settings, asyncio.Event())
        settings = replace(world.settings, metrics=MetricsSettings("plain:no host", 9469))
        with pytest.raises(
            CentreError,
            match=r"^metrics at plain:no host:9469: (Name or service not known|Temporary failure in name resolution)$",
        ):
            await serve(settings, asyncio.Event())

    play_centre(tmp_path, act)
