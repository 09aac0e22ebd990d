"""Task graphs in the live scheduler: hetero_spotri as tasks of sleeps, planned in different ways, at virtual time.

`python -m tests.benchmarks.task_graphs`: a real service and scheduler, and centres of 16 cores and 4 units with a GPU
in three parts of a fat tree, whose clock jumps from the end of a task to the next. The file has no sizes of edges: each
is `--mib`. Reported are the seconds until the last task has ended; a ratio above 1 means that HEFT is better.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.resources import Task
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.profiles import HEFT, MEASURED, TaskProfileSettings
from controller.scheduling.tasks.settings import TaskSettings
from tests.controller.apiserver.api_server import serving, settings_in
from tests.controller.scheduling.serving.tasks.centres import PlayedCentre
from tests.controller.scheduling.serving.tasks.conftest import Site
from tests.controller.scheduling.serving.tasks.spotri import (
    VirtualWorld,
    first_tasks,
    seconds_on,
    sleeping,
    tasks_of,
    unit_types,
    virtual_world,
)

_REPORT_S = 10.0

SIDES: dict[str, TaskProfileSettings] = {
    "heft": HEFT,
    "measured": MEASURED,
    "arrival": replace(HEFT, name="arrival", order="arrival"),
    "thrift": replace(HEFT, name="thrift", scores=(PolicySettings(policy="thrift"),)),
}


async def makespan_s(profile: TaskProfileSettings, number: int | None, nbytes: int) -> tuple[float, float]:
    """Return the virtual seconds that the graph takes, and the real ones of the run."""
    begun_s = time.monotonic()
    tasks = tasks_of(first_tasks(number), nbytes=nbytes, profile=profile.name)
    with tempfile.TemporaryDirectory() as folder:
        settings = TaskSettings(profiles=(profile,))
        async with virtual_world(Path(folder), settings, "fat-tree-4") as world:
            await add_centres(world)
            await world.run(tasks)
            return world.elapsed_s, time.monotonic() - begun_s


async def add_centres(world: VirtualWorld) -> None:
    """Add 16 cores and 4 units with a GPU."""
    await world.add_centre("c1", "h1", *unit_types(6, 0))
    await world.add_centre("c2", "h5", *unit_types(6, 0))
    await world.add_centre("c3", "h9", *unit_types(4, 4))


def learning(checkpoint: Path, *, shadow: bool) -> TaskProfileSettings:
    """Return HEFT with a network beside it: in shadow it learns from HEFT's decisions, else it makes them."""
    network = {"form": "tokens", "hidden": 32, "heads": 2, "layers": 1, "feed_forward": 32}
    training = {"buffer": 64, "batch": 32, "batches": 4, "publish_every": 32, "optimiser": "adam"}
    agent = {"network": network, "training": training, "decisions": {"exploration": 0.0, "precision": "float32"}}
    learn = {"agent": agent, "gain": "log-response", "load_features": True} if shadow else None
    settings = {"checkpoint": str(checkpoint), "shadow": shadow, "deadline": "1s", "learn": learn}
    score = PolicySettings(policy="learned", weight=1000, settings=settings)
    return replace(HEFT, scores=(*HEFT.scores, score))


async def learned_s(episodes: int, number: int | None, nbytes: int) -> tuple[float, float]:
    """Return the makespan by a network that has watched HEFT plan this many graphs, and the real seconds."""
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, checkpoint = Path(name), Path(name) / "tasks.ckpt"
        settings = TaskSettings(profiles=(learning(checkpoint, shadow=True),))
        async with virtual_world(folder, settings, "fat-tree-4") as world, world.scheduler.lessons.opened():
            await add_centres(world)
            for episode in range(episodes):
                graph = tasks_of(first_tasks(number), nbytes=nbytes, prefix=f"e{episode}-", profile="heft")
                await world.run(graph)
            standing = next(iter(world.scheduler.lessons.learners.values())).standing
            print(f"learned from {dict(standing.experiences)}, training {dict(standing.training)}")
        profile = learning(checkpoint, shadow=False)
        return (await makespan_s(profile, number, nbytes))[0], time.monotonic() - begun_s


async def real_s(number: int | None, compression: float) -> float:
    """Return the seconds that the graph takes as real sleeps, by a service and a scheduler with watches."""
    tasks = tasks_of(first_tasks(number), compression=compression, profile="heft")
    with tempfile.TemporaryDirectory() as folder:
        async with serving(settings_in(Path(folder)), Path(folder)) as served:
            site = Site(served.client, served.socket)
            centres = [site.centre("c1", 1.0, *unit_types(12, 0)), site.centre("c2", 1.0, *unit_types(4, 4))]
            async with site.running(*centres), site.scheduling(), sleeping(site.client, *centres), reporting(*centres):
                begun_s = time.monotonic()
                for task in tasks:
                    await site.client.of(Task).create(task)
                await site.ended(*(task.metadata.name for task in tasks))
                return time.monotonic() - begun_s


@asynccontextmanager
async def reporting(*centres: PlayedCentre) -> AsyncIterator[None]:
    """Let centres report again and again until the block ends: one that is silent gets no more tasks."""

    async def report() -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            for centre in centres:
                await centre.report()

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def main() -> None:
    """Print the makespans of all sides."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, help="the graph's first tasks; default: all")
    parser.add_argument("--mib", type=int, default=64, help="size of each task's output")
    parser.add_argument("--real", type=float, help="run it as real sleeps instead, of the graph's times over this")
    parser.add_argument("--learn", type=int, help="compare with a network that has watched this many graphs")
    options = parser.parse_args()
    if options.real:
        print(json.dumps({"real_s": round(asyncio.run(real_s(options.tasks, options.real)), 2)}))
        return
    graph = tasks_of(first_tasks(options.tasks))
    bound_s = sum(min(seconds_on(task, "gpu"), seconds_on(task, "cpu")) for task in graph) / 20
    print(f"{len(graph)} tasks, {options.mib} MiB an edge; work over all units: {bound_s:.1f} s")
    ended = {}
    for name, profile in SIDES.items():
        ended[name], took_s = asyncio.run(makespan_s(profile, options.tasks, options.mib << 20))
        print(f"{name:24} {ended[name]:8.2f} s   (run in {took_s:.1f} s)", flush=True)
    if options.learn:
        ended["learned"], took_s = asyncio.run(learned_s(options.learn, options.tasks, options.mib << 20))
        print(f"{'learned':24} {ended['learned']:8.2f} s   (run in {took_s:.1f} s)", flush=True)
    figures = {
        "tasks": len(graph),
        "heft_s": round(ended["heft"], 3),
        **{f"heft_over_{name}": round(ended[name] / ended["heft"], 3) for name in ended if name != "heft"},
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
