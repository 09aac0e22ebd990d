"""Two schedulers, each killed (SIGKILL) again and again at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.controller.scheduling.serving.conftest import Cluster, Play
from tests.controller.scheduling.serving.started import start
from tests.controller.scheduling.serving.test_scheduler import check_books, placed

PODS = 120
KILLS = 2


@pytest.mark.slow
def test_nothing_is_lost_and_nothing_is_placed_twice(play: Play, tmp_path: Path) -> None:
    rng = random.Random(1)

    async def act(cluster: Cluster) -> None:
        settings = tmp_path / "scheduler.yaml"
        settings.write_text(f"api: {cluster.socket}\nqueue: {{first_wait: 1ms, longest_wait: 1s}}\n")
        for number in range(6):
            await cluster.add_node(f"h{number}", cores=PODS // 6)
        running = await start(settings)
        for number in range(PODS):
            await cluster.add_pod(f"p{number}")
            if number % (PODS // KILLS) == PODS // KILLS // 2:
                # Somewhere in the middle of deciding and binding.
                now = (await cluster.pods_when(lambda _: True)).values()
                bound = sum(pod.status.node is not None for pod in now) + rng.randrange(3)
                await cluster.pods_when(
                    lambda pods, bound=bound: (
                        sum(pod.status.node is not None for pod in pods.values())  # type: ignore[misc]
                        >= min(bound, len(pods))
                    )
                )
                running.kill()
                await running.wait()
                running = await start(settings)
        pods = await cluster.pods_when(lambda pods: len(pods) == PODS and placed(pods))
        assert {pod.status.epoch for pod in pods.values()} == {1}
        await check_books(cluster)
        running.terminate()
        assert await running.wait() == 0

    play(act)
