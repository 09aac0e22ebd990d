"""Tasks dispatched a second through real processes: `millrace api` and `millrace scheduler` with `tasks: {}`.

Centres, probe tasks of a few types and their results are written as agents would have written them; no centre runs
anything. Tasks wait before the scheduler starts; timed from its ready line until a watch has seen the last dispatch.

    .venv/bin/python -m tests.benchmarks.chaining.tasks     # --centres 40 --tasks 1500
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from controller.apiserver.client import ApiClient
from controller.apiserver.client.calls import watching
from controller.apiserver.resources import Centre, Metadata, Task
from controller.apiserver.resources.base import R, Resource
from controller.apiserver.resources.centre import CentreSpec, CentreStatus, UnitType
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.apiserver.resources.task_rules import TASK
from tests.benchmarks.chaining import placing_daemons
from tests.benchmarks.chaining.pods import Run, cpu_ms, create_all
from tests.benchmarks.task_decisions import UNITS, probe, result

CENTRES: Final = 40
TASKS: Final = 1500
QUICK_TASKS: Final = 300
TYPES: Final = 5
_COUNT: Final = 64
_DISPATCHED: Final = '"phase":"dispatched"'


def tasks_bound_per_s(centres: int = CENTRES, tasks: int = TASKS) -> float:
    """Return how many tasks that wait are dispatched a second, from the scheduler's ready line to the last."""
    return asyncio.run(waiting_run(centres, tasks)).per_s


def measure(*, quick: bool = False) -> dict[str, float]:
    """Return all figures by name."""
    run = asyncio.run(waiting_run(CENTRES, QUICK_TASKS if quick else TASKS))
    print(f"tasks: {run.per_s:.0f} a second; CPU ms a task: {run.cpu_ms}")
    return {"tasks_bound_per_s": run.per_s}


async def waiting_run(centres: int, tasks: int) -> Run:
    """Time the dispatch of tasks that wait before the scheduler starts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with placing_daemons.api(folder) as (api, client):
            for resources in site(centres, tasks):
                await create_all(client, resources)
            all_sent = asyncio.create_task(_until_dispatched(client, tasks))
            async with placing_daemons.scheduler(folder, "tasks: {}\n") as scheduler:
                begun, before = time.perf_counter(), (api.cpu_s, scheduler.cpu_s)
                await all_sent
                seconds, after = time.perf_counter() - begun, (api.cpu_s, scheduler.cpu_s)
    return Run(tasks, seconds, cpu_ms(("api", "scheduler"), before, after, tasks))


def site(centres: int, tasks: int) -> list[list[Resource]]:
    """Return probe tasks, centres that report, results of every probe on all of their units, and tasks that wait."""
    rng = random.Random(1)
    probes = [_new(probe(f"type-{number}")) for number in range(TYPES)]
    units = tuple(UnitType(name=name, count=_COUNT, operators=("dgemm",)) for name in UNITS)
    status = CentreStatus(ready=True, units=units, heartbeat_ns=1)
    places = [
        Centre(metadata=Metadata(name=f"c{number}"), spec=CentreSpec(lease_s=3600.0), status=status)
        for number in range(centres)
    ]
    results = [
        _new(result(f"type-{kind}", f"c{number}", unit, rng))
        for number in range(centres)
        for kind in range(TYPES)
        for unit in UNITS
    ]
    program = Program(kind=ProgramKind.SCRIPT, text="true")
    waiting = [
        Task(
            metadata=Metadata(name=f"task-{number}"),
            spec=TaskSpec(program=program, task_type=f"type-{number % TYPES}", units=(1,)),
        )
        for number in range(tasks)
    ]
    return [probes, places, results, waiting]  # type: ignore[list-item]


def _new(resource: R) -> R:
    return replace(resource, metadata=Metadata(name=resource.metadata.name))


async def _until_dispatched(client: ApiClient, tasks: int) -> None:
    seen = 0
    async with aclosing(client.lines(watching(TASK, "", "", 0))) as lines:
        async for line in lines:
            seen += _DISPATCHED in line
            if seen >= tasks:
                return


def main(argv: list[str]) -> None:
    """Measure, and print the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--centres", type=int, default=CENTRES)
    parser.add_argument("--tasks", type=int, default=TASKS)
    asked = parser.parse_args(argv)
    run = asyncio.run(waiting_run(asked.centres, asked.tasks))
    print(f"{run.per_s:.0f} tasks/s; CPU ms a task: {run.cpu_ms}")
    print(json.dumps({"tasks_bound_per_s": round(run.per_s, 3), "dispatch_cpu_ms": round(sum(run.cpu_ms.values()), 3)}))


if __name__ == "__main__":
    main(sys.argv[1:])
