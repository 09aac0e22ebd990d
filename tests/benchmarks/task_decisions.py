"""Decision time: ten thousand waiting tasks of a hundred types over a thousand centres.

`python -m tests.benchmarks.task_decisions`: a round of the task scheduler without the API: build its state from
resources, then plan all tasks. All centres have three unit types on which each type was measured.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from controller.apiserver.resources import Centre, Metadata, ProbeResult, ProbeTask, Task
from controller.apiserver.resources.centre import CentreStatus, UnitType
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.apiserver.resources.probe_task import ImplementationSpec, KernelUseSpec, ProbeTaskSpec
from controller.apiserver.resources.task import Program, ProgramKind, TaskSpec
from controller.scheduling.serving.tasks.hours import Hours
from controller.scheduling.serving.tasks.knowledge import Knowledge, pending_of
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.probing import probes_due
from controller.scheduling.tasks.profiles import MEASURED, TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.topology.values import DeviceKind

NOW_NS = 1_900_000_000_000_000_000
UNITS = ("small", "middle", "large")
COUNTS = (1, 2, 4)


def site(tasks: int, centres: int, types: int, seed: int = 1) -> TasksView:
    """Return a view of this many pending tasks and measured centres."""
    view, rng = TasksView(), random.Random(seed)
    for number in range(types):
        view.take(probe(f"type-{number}"), 0)
    for number in range(centres):
        units = tuple(UnitType(name=name, count=8, operators=("dgemm",)) for name in UNITS)
        status = CentreStatus(ready=True, units=units, heartbeat_ns=NOW_NS)
        view.take(Centre(metadata=_metadata(f"c{number}"), status=status), 0)
        for kind in range(types):
            for unit in UNITS:
                view.take(result(f"type-{kind}", f"c{number}", unit, rng), 0)
    for number in range(tasks):
        spec = TaskSpec(program=Program(kind=ProgramKind.SCRIPT, text="x"), task_type=f"type-{number % types}")
        view.take(Task(metadata=_metadata(f"task-{number}"), spec=spec), 0)
    return view


def _metadata(name: str) -> Metadata:
    return Metadata(name=name, uid=name, revision=1, created_ns=NOW_NS)


def probe(task_type: str) -> ProbeTask:
    """Return a probe task of a type: one kernel."""
    code = ImplementationSpec(device=DeviceKind.CPU, library="numpy", entry="m:f")
    use = KernelUseSpec(
        name="dgemm", kernel="dgemm", version=1, implementation=code, executions=3000, repetitions=3, tolerance=1e-9
    )
    spec = ProbeTaskSpec(category="hpc", uses=(use,), task_type=task_type, share_matched=1.0)
    return ProbeTask(metadata=_metadata(f"of-{task_type}"), spec=spec)


def result(task_type: str, centre: str, unit: str, rng: random.Random) -> ProbeResult:
    """Return what the probe of a type has measured on units of a centre."""
    runs = []
    for units in COUNTS:
        one_s = rng.uniform(0.001, 0.01) / units
        times = tuple(one_s * rng.uniform(1.0, 1.02) for _ in range(3))
        run = ProbeRun(
            units=units,
            run_times_s=tuple(3 * time_s for time_s in times),
            kernels_s={"dgemm": times},
            kernel_accuracies={"dgemm": 0.0},
        )
        runs.append(run)
    name = f"of-{task_type}"
    return ProbeResult(
        metadata=_metadata(f"{name}.{centre}.{unit}"),
        spec=ProbeResultSpec(probe=name, centre=centre, unit=unit, task_type=task_type),
        status=ProbeResultStatus(runs=tuple(runs), policy="default"),
    )


def main() -> None:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--centres", type=int, default=1_000)
    parser.add_argument("--types", type=int, default=20)
    asked = parser.parse_args()
    view = site(asked.tasks, asked.centres, asked.types)
    settings, profile = TaskSettings(), TaskProfile.of(MEASURED)
    knowledge = Knowledge(view, settings, Hours(view))
    figures = {"tasks": asked.tasks, "centres": asked.centres, "types": asked.types}
    for name in ("first_round_s", "round_s"):
        begun = time.perf_counter()
        started = _round(view, knowledge, profile)
        figures[name] = round(time.perf_counter() - begun, 2)
    figures["begin_now"] = started
    begun = time.perf_counter()
    waiting = {
        f"type-{number}": [pending_of(view.tasks[f"task-{number}"], f"type-{number}", frozenset())]
        for number in range(3)
    }
    states = knowledge.centres_view(0, NOW_NS, None, ()).centres
    needs, probes = knowledge.needs(waiting), knowledge.probes_known()
    probes_due(needs, knowledge.places(), states, probes, settings=settings.probing, now_ns=NOW_NS)
    figures["probes_s"] = round(time.perf_counter() - begun, 2)
    for name, value in figures.items():
        print(f"{name:>14} {value}")
    print(json.dumps(figures))


def _round(view: TasksView, knowledge: Knowledge, profile: TaskProfile) -> int:
    pending = order_of(
        pending_of(task, view.type_of(task), knowledge.kernels_of(view.type_of(task))) for task in view.waiting()
    )
    plan, dispatched = Plan(knowledge.centres_view(0, NOW_NS, None, pending)), 0
    for waiting in pending:
        options = knowledge.options(profile, knowledge.known_type(waiting.task_type, waiting.units), NOW_NS)
        verdict = plan.decide(profile, waiting, options)
        dispatched += verdict.option is not None and verdict.start_s <= 0
    return dispatched


if __name__ == "__main__":
    main()
