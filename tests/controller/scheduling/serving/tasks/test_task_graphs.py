"""Item 13: tasks with predecessors and data edges, walked, planned by rank and by a network, and run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.resources import ProbeTask, Task
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.predecessors import DataInput, DataOutput, OnFailure
from controller.apiserver.resources.task import TaskPhase
from controller.learning.agent.agents import new_checkpoint
from controller.learning.agent.purpose import MadeFor
from controller.learning.agent.records import save_checkpoint
from controller.learning.agent.settings import AgentSettings, DecisionSettings, NetworkSettings
from controller.learning.policy.tasks import example
from controller.scheduling.framework.profiles import PolicySettings
from controller.scheduling.tasks.profiles import HEFT
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.topology.values import DeviceKind
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, units
from tests.controller.scheduling.serving.tasks.spotri import (
    DATA,
    VirtualWorld,
    first_tasks,
    seconds_on,
    sleeping,
    tasks_of,
    unit_types,
    virtual_world,
)

MIB = 1 << 20
PLAIN = {"operators": (), "category": None}
NETWORK = NetworkSettings(form="tokens", hidden=8, heads=2, layers=1, feed_forward=8, deviation=0.5)
AGENT = AgentSettings(network=NETWORK, decisions=DecisionSettings(precision="float32", exploration=0.0))
has_spotri = pytest.mark.skipif(not DATA.exists(), reason=f"needs {DATA.name}")


def told(tasks: dict[str, Task], name: str) -> str:
    return "; ".join(tasks[name].status.reasons) if name in tasks else ""


def test_task_starts_after_its_predecessors_near_their_data(play: Play) -> None:
    """Both centres are equal but for the data, which the second task reads where the first one left it."""

    async def act(site: Site) -> None:
        here, there = site.centre("here", hosts=("h1",)), site.centre("there", hosts=("h16",))
        there.is_answering = False
        async with site.running(here, there), site.scheduling(topology="fat-tree-4"):
            await site.submit("load", **PLAIN, centre="there", outputs=(DataOutput(name="rows", nbytes=64 * MIB),))
            await site.submit(
                "train",
                **PLAIN,
                task_type="train",
                after=("load",),
                inputs=(DataInput(task="load", output="rows"),),
                expected={DeviceKind.CPU: 0.01},
            )
            tasks = await site.tasks_when(lambda tasks: told(tasks, "train") == "runs after load")
            assert tasks["train"].status.phase is TaskPhase.PENDING
            load = await site.client.of(Task).get("load")
            item = Completion(task="load", epoch=load.status.epoch, phase=TaskPhase.SUCCEEDED, exit_code=0)
            there.is_answering = True
            await site.client.complete(CompletionRequest(completions=(item,)))
            tasks = await site.ended("train")
            status = tasks["train"].status
            assert (status.phase, status.centre) == (TaskPhase.SUCCEEDED, "there")
            (end,) = status.predecessors
            assert (end.task, end.succeeded, end.centre) == ("load", True, "there")
            assert [(data.output, data.nbytes) for data in end.inputs] == [("rows", 64 * MIB)]
            assert (status.dispatched_ns or 0) >= (tasks["load"].status.finished_ns or 1)
            reasons = {
                score.node: " ".join(score.reasons) for score in (await site.decisions_about("train"))[-1].spec.scores
            }
            assert f"its {64 * MIB} bytes arrive in 0 s (measured)" in reasons["there"]
            # Through links of 10 Gbit/s that is 54 ms.
            assert f"its {64 * MIB} bytes arrive in 0.05369 s (nominal)" in reasons["here"]

    play(act)


def test_failed_predecessor_cancels_or_is_ignored_or_waited_for(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a")
        true = centre.completion

        def failing(task: Task, probe: ProbeTask | None) -> Completion:
            made = true(task, probe)
            if task.metadata.name != "bad" or task.spec.priority:
                return made
            return replace(made, phase=TaskPhase.FAILED, exit_code=3, reasons=("no input",))

        centre.runs = failing
        async with site.running(centre), site.scheduling():
            await site.submit("bad", **PLAIN)
            for name, on_failure in (("cancels", "cancel"), ("runs", "run"), ("waits", "wait")):
                await site.submit(name, **PLAIN, after=("bad",), on_failure=OnFailure(on_failure))
            await site.submit("follows", **PLAIN, after=("cancels",))
            tasks = await site.tasks_when(
                lambda tasks: (
                    "waits until a task of that name" in told(tasks, "waits")
                    and "cancelled" in told(tasks, "follows")
                    and tasks["runs"].status.phase is TaskPhase.SUCCEEDED
                )
            )
            assert tasks["cancels"].status.phase is tasks["follows"].status.phase is TaskPhase.FAILED
            assert told(tasks, "cancels") == "cancelled, as its predecessor bad has failed (no input)"
            assert told(tasks, "follows").startswith("cancelled, as its predecessor cancels has failed (cancelled, as")
            assert not tasks["cancels"].status.epoch
            (end,) = tasks["runs"].status.predecessors
            assert not end.succeeded
            # Submitted again, and this time it succeeds.
            await site.client.of(Task).delete("bad")
            await site.submit("bad", **PLAIN, priority=1)
            assert (await site.ended("waits"))["waits"].status.phase is TaskPhase.SUCCEEDED

    play(act)


def test_deleted_predecessor_has_failed_unless_it_succeeded(play: Play) -> None:
    async def act(site: Site) -> None:
        centre = site.centre("a", 1.0, units("cpu", 1))
        async with site.running(centre), site.scheduling():
            await site.submit("nowhere", **PLAIN, centre="elsewhere")
            await site.submit("cancels", **PLAIN, after=("nowhere",))
            await site.submit("done", **PLAIN)
            await site.submit("both", **PLAIN, after=("done", "nowhere"), on_failure=OnFailure.RUN)
            await site.tasks_when(lambda tasks: told(tasks, "both") == "runs after nowhere")
            # Its success is on record: it is needed no longer.
            await site.client.of(Task).delete("done")
            await site.client.of(Task).delete("nowhere")
            tasks = await site.ended("both")
            assert [(end.task, end.succeeded) for end in tasks["both"].status.predecessors] == [("done", True)]
            tasks = await site.tasks_when(lambda tasks: "cancelled" in told(tasks, "cancels"))
            assert told(tasks, "cancels") == "cancelled, as its predecessor nowhere was deleted"

    play(act)


def test_waiting_task_says_where_it_is_planned(play: Play) -> None:
    """Planned before its predecessor has ended, as its end is expected."""

    async def act(site: Site) -> None:
        centre = site.centre("a")
        centre.runs = lambda task, _: None
        async with site.running(centre), site.scheduling():
            expected = {DeviceKind.CPU: 600.0}
            await site.submit("first", **PLAIN, task_type="first", expected=expected)
            await site.submit("second", **PLAIN, task_type="second", expected=expected, after=("first",))
            tasks = await site.tasks_when(lambda tasks: "planned" in told(tasks, "second"))
            assert told(tasks, "second").startswith("runs after first; planned: a: 1 of cpu, once they are free: 600 s")
            decision = (await site.decisions_about("second"))[-1].spec
            assert decision.outcome is Outcome.WAITING
            assert [placement.node for placement in decision.placements] == ["a"]

    play(act)


async def add_centres(world: VirtualWorld) -> None:
    """Add two racks of cores, and one with GPUs, in different parts of the fat tree."""
    await world.add_centre("c1", "h1", *unit_types(8, 0))
    await world.add_centre("c2", "h5", *unit_types(8, 0))
    await world.add_centre("c3", "h9", *unit_types(4, 4))


def learned(folder: Path) -> PolicySettings:
    """Return the policy of a network that decides live: its weights are as they were drawn, but count as trained."""
    file = folder / "tasks.ckpt"
    checkpoint = new_checkpoint(AGENT, example(MadeFor("tasks", network=True, load=True)), "tasks")
    save_checkpoint(file, msgspec.structs.replace(checkpoint, version=3))
    return PolicySettings(
        policy="learned", weight=1000, settings={"checkpoint": str(file), "shadow": False, "deadline": "10s"}
    )


def is_in_order(tasks: dict[str, Task]) -> bool:
    """Return whether no task has started before its predecessors had ended."""
    return all(
        (tasks[before].status.finished_ns or 0) <= (task.status.started_ns or 0)
        for task in tasks.values()
        for before in task.spec.predecessors
    )


@has_spotri
@pytest.mark.parametrize("policy", ["heft", "learned"])
def test_hetero_spotri_runs_in_virtual_time(tmp_path: Path, policy: str) -> None:
    """The first tasks of the graph, of seconds each; all of it runs in tests/benchmarks/task_graphs.py."""
    profile = HEFT if policy == "heft" else replace(HEFT, scores=(*HEFT.scores, learned(tmp_path)))
    tasks = tasks_of(first_tasks(40), nbytes=4 * MIB, profile=profile.name)

    async def main() -> None:
        async with virtual_world(tmp_path, TaskSettings(profiles=(profile,)), "fat-tree-4") as world:
            await add_centres(world)
            ended = dict(await world.run(tasks))
            assert all(task.status.phase is TaskPhase.SUCCEEDED for task in ended.values())
            assert is_in_order(ended)
            work_s = sum(seconds_on(task, "gpu") for task in ended.values())
            longest_s = max(end.status.finished_ns or 0 for end in ended.values()) / 1e9 - 1_900_000_000
            assert work_s / 24 <= longest_s == pytest.approx(world.elapsed_s)
            assert len({task.status.centre for task in ended.values()}) > 1
            made = [each.spec for each in await world.decisions() if each.spec.outcome is Outcome.DISPATCHED]
            words = "version 3 gives it" if policy == "learned" else "finish-time: 1 of "
            assert len(made) == len(tasks)
            assert all(any(words in reason for reason in spec.scores[0].reasons) for spec in made)

    asyncio.run(main())


@has_spotri
def test_hetero_spotri_runs_in_real_time(play: Play) -> None:
    """The first tasks of the graph, as sleeps of milliseconds at two centres of a real service."""
    tasks = tasks_of(first_tasks(24), compression=200)

    async def act(site: Site) -> None:
        centres = [site.centre("c1", 1.0, *unit_types(4, 0)), site.centre("c2", 1.0, *unit_types(2, 2))]
        async with site.running(*centres), site.scheduling(), sleeping(site.client, *centres):
            for task in tasks:
                await site.client.of(Task).create(task)
            assert is_in_order(await site.ended(*(task.metadata.name for task in tasks)))

    play(act)
