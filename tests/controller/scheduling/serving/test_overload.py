"""An overloaded scheduler reports it in its metrics and in `millrace status`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from controller.apps.up.health import check_scheduler
from controller.scheduling import process
from controller.scheduling.overload import monitor_of
from controller.scheduling.serving.pending import PendingQueue
from controller.scheduling.settings import MetricsSettings, QueueSettings, SchedulerSettings
from dataplane.load.monitor import BEGIN_AFTER
from dataplane.load.values import DaemonLoad
from tests.controller.scheduling.serving.conftest import Cluster, Play
from tests.waiting import until

S = 1_000_000_000


def test_full_queue_is_reported_as_overload(play: Play) -> None:
    async def act(cluster: Cluster) -> None:
        for name in ("a", "b", "c"):
            await cluster.add_pod(name)
        stop, lines = asyncio.Event(), asyncio.Queue[str]()
        queue = QueueSettings(most=2)
        settings = SchedulerSettings(api=cluster.socket, queue=queue, metrics=MetricsSettings(port=0))
        task = asyncio.create_task(process.serve(settings, stop, on_ready=lines.put_nowait))
        ready = await lines.get()
        text = ""

        async def is_overloaded() -> bool:
            nonlocal text
            health = await check_scheduler(ready)
            assert health.ok
            text = health.text
            return "pods that wait; raise queue.most" in text

        await until(is_overloaded, lambda: text, poll_s=0.05)
        assert "2 pods wait" in text
        stop.set()
        await task

    play(act)


class Bench:
    """The monitor of a scheduler with a queue and rounds set by the test."""

    def __init__(self) -> None:
        self.queue = PendingQueue(QueueSettings(most=4))
        self.now_ns = 0
        self.tasks = SimpleNamespace(last_round_ns=0)
        scheduler: Any = SimpleNamespace(queue=self.queue, undecided=lambda: self.queue.undecided(self.now_ns))
        self._monitor = monitor_of(scheduler, self.tasks, process.LOGGER)  # type: ignore[arg-type]

    def load(self) -> DaemonLoad:
        for _ in range(BEGIN_AFTER):
            sample = self._monitor.sample(0)
        return sample


@pytest.fixture
def bench() -> Bench:
    return Bench()


def causes(load: DaemonLoad) -> dict[str, str]:
    # Between two close samples the test's own thread may use a whole core.
    return {overload.name: overload.cause for overload in load.overloads if not overload.name.startswith("thread ")}


def test_pods_that_could_be_decided_about_wait_for_too_long(bench: Bench) -> None:
    bench.queue.put("pod/a", 0, 0)
    bench.queue.put("pod/b", 0, S)
    assert not causes(bench.load())
    bench.now_ns = 3 * S
    assert causes(bench.load()) == {"pods to decide about": "pods to decide about: the oldest has waited for 3.0 s"}
    bench.queue.refused("pod/a", bench.now_ns)
    bench.queue.take_out("pod/b")
    assert bench.queue.undecided(bench.now_ns) == (0, None)


def test_a_long_look_at_all_tasks_is_an_overload(bench: Bench) -> None:
    bench.tasks.last_round_ns = 2 * S
    assert causes(bench.load()) == {"task round": "a round over all tasks took 2.0 s"}
