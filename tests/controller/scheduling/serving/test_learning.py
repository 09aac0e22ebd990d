"""A network trained while pods are placed: in shadow, saved, resumed, then live; real service, scheduler, training.

The test plays the nodes: a pod starts after its node's fixed delay.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

from msgspec.structs import replace
from typer.testing import CliRunner

from controller.apiserver.registry.placements import Release, ReleaseRequest
from controller.apiserver.resources import Decision, Metadata, Pod, PodGroup
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import PodGroupSpec
from controller.apps.cli.app import app
from controller.learning.agent.records import load_checkpoint
from controller.learning.policy.live import LiveNetwork
from controller.learning.policy.pods import Learned
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.pods import PodProfileSettings
from controller.scheduling.process import serve
from controller.scheduling.serving.scheduler import Scheduler
from controller.scheduling.settings import MetricsSettings, SchedulerSettings
from dataplane.errors import MillraceError
from tests.controller.scheduling.serving.conftest import QUICK, Cluster, Play, placed_name
from tests.waiting import until

AGENT = {
    "network": {"form": "tokens", "hidden": 8, "heads": 2, "layers": 1, "feed_forward": 8},
    "training": {
        "buffer": 8,
        "batch": 4,
        "batches": 2,
        "publish_every": 4,
        "drop_duplicates": False,
        "nice": 0,
        "optimiser": "adam",
    },
    "decisions": {"exploration": 0.0, "precision": "float32"},
}
START_NS = {"h0": 2_000_000_000, "h1": 40_000_000, "h2": 2_000_000_000}


def _settings(checkpoint: Path, *, shadow: bool) -> SchedulerSettings:
    learned: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "shadow": shadow,
        "deadline_ns": 10**9,
        "learn": {"agent": AGENT},
    }
    scores = (
        PolicySettings(policy="least-used"),
        PolicySettings(policy="learned", weight=1000, settings=learned),
    )
    profile = PodProfileSettings(scores=scores)
    return SchedulerSettings(queue=QUICK, profiles=(profile,), metrics=MetricsSettings(port=0))


def _network(scheduler: Scheduler) -> LiveNetwork:
    return next(
        score.policy for score in scheduler.profiles["default"].scores if isinstance(score.policy, Learned)
    ).network


@asynccontextmanager
async def _scheduling(cluster: Cluster, settings: SchedulerSettings) -> AsyncIterator[tuple[LiveNetwork, str]]:
    """Run a scheduler until the block ends; yield its network and its metrics' URL."""
    schedulers, stop = asyncio.Queue[Scheduler](), asyncio.Event()
    lines: list[str] = []
    made = replace(settings, api=cluster.socket)
    task = asyncio.create_task(serve(made, stop, on_ready=lines.append, on_scheduler=schedulers.put_nowait))
    try:
        network = _network(await schedulers.get())
        yield network, lines[0].partition("metrics at ")[2]
    finally:
        stop.set()
        await task


async def _place(cluster: Cluster, name: str) -> Pod:
    """Create a pod, let its node start and end it, and return it as bound."""
    await cluster.add_pod(name)
    pod = (await cluster.pods_when(placed_name(name)))[name]
    assert pod.status.node is not None
    assert pod.status.bound_ns is not None
    started_ns = pod.status.bound_ns + START_NS[pod.status.node]
    running = replace(pod.status, phase=Phase.RUNNING, started_ns=started_ns)
    await cluster.client.of(Pod).replace_status(replace(pod, status=running))
    await cluster.client.release(ReleaseRequest(releases=(Release(pod=name, phase=Phase.SUCCEEDED),)))
    return pod


async def _figures(metrics: str) -> dict[str, float]:
    """Return the scheduler's learning metrics by name and label values."""

    def read() -> str:
        with urllib.request.urlopen(metrics, timeout=10) as answer:
            text: str = answer.read().decode()
            return text

    matches = re.findall(
        r"^millrace_scheduler_learning_(\w+)\{([^}]*)\} (\S+)$", await asyncio.to_thread(read), re.MULTILINE
    )
    return {" ".join((name, *re.findall(r'"([^"]*)"', labels))): float(figure) for name, labels, figure in matches}


async def _figures_of(decisions: int, who: str, metrics: str) -> dict[str, float]:
    """Return the metrics once they count this many decisions: they lag behind a pod's binding."""
    figures: dict[str, float] = {}

    async def are_counted() -> bool:
        nonlocal figures
        figures = await _figures(metrics)
        return figures.get(f"decisions_total {who} pods default", 0) >= decisions

    await until(are_counted, lambda: f"too few decisions: {figures}", poll_s=0.02)
    return figures


async def _said(*words: str) -> str:
    """Return the output of a `scheduler` command."""
    result = await asyncio.to_thread(CliRunner().invoke, app, ["scheduler", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_learns_in_shadow_is_resumed_and_goes_live(play: Play, tmp_path: Path) -> None:
    checkpoint = tmp_path / "agent.ckpt"

    async def act(cluster: Cluster) -> None:
        for name in START_NS:
            await cluster.add_node(name)
        async with _scheduling(cluster, _settings(checkpoint, shadow=True)) as (network, metrics):
            placed = 0
            while network.standing.version == 0 or placed < 24:
                await _place(cluster, f"shadow-{placed}")
                placed += 1
                assert placed < 500, network.standing
            await cluster.client.of(PodGroup).create(PodGroup(metadata=Metadata(name="g"), spec=PodGroupSpec(size=2)))
            for name in ("g0", "g1"):
                await cluster.add_pod(name, group="g")
            await cluster.pods_when(placed_name("g1"))
            placed += 2
            figures = await _figures_of(placed, "others", metrics)
            assert figures["decisions_total others pods default"] == placed
            assert figures["waiting pods default"] == 2
            assert figures["experiences_total pods started default"] == placed - 2
            assert figures["unanswered_total pods default untrained"] >= 9
            assert figures["shadow pods default"] == 1
            assert figures["compared_total pods default"] + figures["unanswered_total pods default untrained"] == placed
            version = network.standing.version
            assert not checkpoint.exists()
        assert load_checkpoint(checkpoint).version >= version
        async with _scheduling(cluster, _settings(checkpoint, shadow=False)) as (network, metrics):
            assert network.standing.version >= version
            pod = await _place(cluster, "live")
            why = (await cluster.client.of(Decision).get(str(pod.status.decision))).spec
            assert re.fullmatch(r"learned: version \d+ gives it \S+, rank 1 of 3", why.scores[0].reasons[-1])
            assert why.scores[0].node == pod.status.node
            assert (await _figures_of(1, "network", metrics))["decisions_total network pods default"] == 1
            output = await _said("explain", "live", "--api", cluster.socket)
            assert re.search(r"learned +│ version \d+ gives it \S+, rank 1 of 3", output), output
            rows = json.loads(await _said("status", "--metrics", metrics, "-f", "json"))
            by_what = {row["what"]: row["value"] for row in rows if (row["of"], row["profile"]) == ("pods", "default")}
            assert (by_what["mode"], by_what["decisions by network"]) == ("live", 1)
            assert by_what["first choices taken"] == "1 of 1 (100.0 %)"

    play(act)


def test_no_scheduler_is_a_line() -> None:
    with pytest.raises(MillraceError, match=r"http://127\.0\.0\.1:1/metrics: "):
        CliRunner().invoke(
            app, ["scheduler", "status", "--metrics", "http://127.0.0.1:1/metrics"], catch_exceptions=False
        )
