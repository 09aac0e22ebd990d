"""Item 14: tasks that need several centres at the same time get all of them, or wait."""

from __future__ import annotations

from msgspec.structs import replace

from controller.apiserver.registry.completions import Completion
from controller.apiserver.resources import Centre, ProbeTask, Task
from controller.apiserver.resources.centre import CentreSpec
from controller.apiserver.resources.task import Member, TaskPhase
from controller.cluster.estimates import Basis, Estimate
from controller.scheduling.tasks.explaining import explained
from controller.scheduling.tasks.planning import Plan
from controller.scheduling.tasks.profiles import HEFT, TaskProfile
from controller.scheduling.tasks.slots import Slots
from controller.scheduling.tasks.values import CentreState, CentresView, Offer, Option, Options, PendingTask
from tests.controller.scheduling.serving.tasks.conftest import Play, Site, units

PLAIN = {"operators": (), "category": None}
PROFILE = TaskProfile.of(HEFT)


def view(*busy_s: float) -> CentresView:
    """Return a view of centres of two units, each free after a time."""
    names = [f"c{number}" for number in range(len(busy_s))]
    slots = tuple(Slots(2, [(2, time_s)] if time_s else []) for time_s in busy_s)
    centres = {name: CentreState(name, is_probed=True) for name in names}
    return CentresView(0, tuple(Offer(name, "cpu", 2) for name in names), centres, slots)


def options(seen: CentresView, *times_s: float) -> Options:
    items = (
        Option(offer.key, 1, Estimate.exactly(time_s, Basis.MEASURED))
        for offer, time_s in zip(seen.offers, times_s, strict=True)
    )
    return Options.of(tuple(items), seen.place)


def test_plan_reserves_all_centres_from_one_start() -> None:
    seen = view(0.0, 0.0, 50.0, 0.0)
    plan, made = Plan(seen), options(seen, 10.0, 12.0, 1.0, 80.0)
    two = plan.decide(PROFILE, PendingTask("two", "t", centres=2), made)
    assert [made.items[row].offer[0] for row in two.rows] == ["c0", "c1"]
    assert (two.start_s, two.finish_s) == (0.0, 12.0)
    # Both are held until the slower one has ended.
    assert seen.slots[0].start_s(2, 5.0) == 12.0
    three = plan.decide(PROFILE, PendingTask("three", "t", centres=3), made)
    assert [made.items[row].offer[0] for row in three.rows] == ["c0", "c1", "c2"]
    assert three.start_s == 50.0
    # Units that wait for it are lent to what ends before.
    assert seen.slots[3].free == 2
    assert plan.decide(PROFILE, PendingTask("short", "t"), made).start_s == 0.0
    summary = explained(PROFILE, three).summary
    assert summary.startswith("c0: 1 of cpu and c1: 1 of cpu and c2: 1 of cpu, once they are free")


def test_fewer_centres_than_needed_are_refused_with_the_reason() -> None:
    seen = view(0.0, 0.0)
    refused = Plan(seen).decide(PROFILE, PendingTask("three", "t", centres=3), options(seen, 1.0, 1.0))
    assert (refused.option, refused.rows) == (None, ())
    why = explained(PROFILE, refused)
    assert why.summary == "3 centres are needed at the same time, 2 of 2 could run it"
    assert [slots.free for slots in seen.slots] == [2, 2]


def test_task_of_several_centres_runs_at_all_or_waits(play: Play) -> None:
    async def act(site: Site) -> None:
        centres = [site.centre(f"c{number}", 1.0, units("cpu", 1)) for number in range(3)]
        late = centres[2]
        parts: list[tuple[str, str]] = []

        def of(name: str) -> None:
            centre = next(each for each in centres if each.name == name)

            def run(task: Task, probe: ProbeTask | None) -> Completion | None:
                if task.metadata.name == "first":
                    return None
                parts.append((name, task.metadata.name))
                return centre.completion(task, probe)

            centre.runs = run

        for centre in centres:
            of(centre.name)
        async with site.running(*centres), site.scheduling():
            await site.submit("first", **PLAIN, centre="c2")
            await site.tasks_when(lambda tasks: tasks["first"].status.phase is TaskPhase.RUNNING)
            await site.submit("wide", **PLAIN, centres=3)
            tasks = await site.tasks_when(lambda tasks: bool(tasks["wide"].status.reasons))
            # All or nothing: two centres are free, and stay so.
            assert tasks["wide"].status.phase is TaskPhase.PENDING
            assert "3 centres are needed at the same time, 2 of 3 could run it" in tasks["wide"].status.reasons[0]
            assert not any([(await site.client.of(Centre).get(name)).shares for name in ("c0", "c1")])
            # More than there are wait, too, and do not hold up others.
            await site.submit("wider", **PLAIN, centres=4)
            first = tasks["first"]
            await site.client.complete(late.ends(first, TaskPhase.SUCCEEDED))
            tasks = await site.ended("wide")
            status = tasks["wide"].status
            assert status.phase is TaskPhase.SUCCEEDED
            assert sorted(member.centre for member in status.members) == ["c0", "c1", "c2"]
            assert sorted(name for name, task in parts if task == "wide") == ["c0", "c1", "c2"]
            decision = (await site.decisions_about("wide"))[-1].spec
            assert sorted(placement.node for placement in decision.placements) == ["c0", "c1", "c2"]
            assert tasks["wider"].status.phase is TaskPhase.PENDING

    play(act)


def test_part_that_fails_fails_the_task_everywhere(play: Play) -> None:
    async def act(site: Site) -> None:
        good, bad = site.centre("good"), site.centre("bad")
        good.runs = lambda task, _: None
        bad.runs = lambda task, _: bad.completion_of(task, TaskPhase.FAILED, "it broke")
        async with site.running(good, bad), site.scheduling():
            await site.submit("wide", **PLAIN, centres=2)
            tasks = await site.tasks_when(lambda tasks: bool(tasks["wide"].status.stopping))
            assert tasks["wide"].status.stopping.endswith("centre bad: it broke")
            await site.client.complete(good.ends(tasks["wide"], TaskPhase.PENDING))
            tasks = await site.tasks_when(lambda tasks: tasks["wide"].status.phase is TaskPhase.FAILED)
            assert tasks["wide"].status.reasons == ("centre bad: it broke",)
            await site.submit("follows", **PLAIN, after=("wide",))
            tasks = await site.tasks_when(lambda tasks: tasks["follows"].status.phase is TaskPhase.FAILED)
            assert not any([(await site.client.of(Centre).get(name)).shares for name in ("good", "bad")])

    play(act)


def test_part_of_a_silent_centre_sends_the_task_again(play: Play) -> None:
    async def act(site: Site) -> None:
        kept, lost = site.centre("kept"), site.centre("lost")
        kept.runs = lost.runs = lambda task, _: None
        async with site.running(kept, lost), site.scheduling():
            await site.submit("wide", **PLAIN, centres=2)
            tasks = await site.tasks_when(lambda tasks: tasks["wide"].status.phase is TaskPhase.RUNNING)
            members: tuple[Member, ...] = tasks["wide"].status.members
            assert {member.phase for member in members} == {TaskPhase.RUNNING}
            made = await site.client.of(Centre).get("lost")
            await site.client.of(Centre).replace(replace(made, spec=CentreSpec(lease_s=0.1)))
            tasks = await site.tasks_when(lambda tasks: bool(tasks["wide"].status.stopping))
            assert tasks["wide"].status.stopping.endswith("centre lost: centre lost has fallen silent")
            kept.runs = lost.runs = None
            await site.client.complete(kept.ends(tasks["wide"], TaskPhase.PENDING))
            await site.tasks_when(lambda tasks: "1 of 2 could run it" in "".join(tasks["wide"].status.reasons))
            made = await site.client.of(Centre).get("lost")
            await site.client.of(Centre).replace(replace(made, spec=CentreSpec()))
            await lost.report()
            tasks = await site.ended("wide")
            assert (tasks["wide"].status.epoch, tasks["wide"].status.phase) == (2, TaskPhase.SUCCEEDED)

    play(act)
