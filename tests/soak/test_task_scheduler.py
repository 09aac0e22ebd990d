"""A task scheduler that is killed (SIGKILL) repeatedly at random: each task and probe is dispatched once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.controller.scheduling.serving.started import start
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, play

__all__ = ["play"]


@pytest.mark.slow
def test_killed_scheduler_loses_nothing_and_repeats_no_probe(play: Play, tmp_path: Path) -> None:
    rng, number, kills = random.Random(1), 120, 8

    async def act(site: Site) -> None:
        settings = tmp_path / "scheduler.yaml"
        settings.write_text(f"api: {site.socket}\ntasks: {{}}\n")
        centres = [site.centre(f"c{index}", 1.0 + index) for index in range(3)]
        async with site.running(*centres):
            running = await start(settings)
            for kill in range(kills):
                for index in range(number // kills):
                    await site.submit(f"t{kill}-{index}", task_type=f"type-{index % 4}")
                least = rng.randrange(1, number // kills)
                await site.tasks_when(
                    lambda tasks, kill=kill, least=least: (
                        sum(task.status.epoch > 0 for name, task in tasks.items() if name.startswith(f"t{kill}-"))  # type: ignore[misc]
                        >= least
                    )
                )
                running.kill()
                await running.wait()
                running = await start(settings)
            names = [f"t{kill}-{index}" for kill in range(kills) for index in range(number // kills)]
            tasks = await site.ended(*names)
            assert {tasks[name].status.epoch for name in names} == {1}
            probes = [task for task in tasks.values() if task.spec.is_probe]
            assert len({(task.spec.program.entry, task.spec.centre, task.spec.units) for task in probes}) == len(probes)
            running.terminate()
            assert await running.wait() == 0

    play(act)
