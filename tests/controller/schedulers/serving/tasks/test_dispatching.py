"""Tasks from submission to their end: probed first, then dispatched by what was measured, each with its reasons."""

from __future__ import annotations

from controller.api.resources import ProbeTask
from controller.api.resources.decision import Outcome
from controller.api.resources.task import TaskPhase
from tests.controller.schedulers.serving.tasks.conftest import Play, Site


def test_a_type_never_seen_is_probed_at_each_centre_then_goes_where_it_ends_first(play: Play) -> None:
    async def act(site: Site) -> None:
        slow, fast = site.centre("slow"), site.centre("fast", 2.0)
        async with site.running(slow, fast), site.scheduling():
            await site.submit("first", task_type="products")
            tasks = await site.ended("first")
            probes = await site.client.of(ProbeTask).list()
            assert [probe.spec.task_type for probe in probes.items] == ["products"]
            assert {task.spec.centre for task in tasks.values() if task.spec.is_probe} == {"slow", "fast"}
            assert tasks["first"].status.centre == "fast"
            assert slow.given[0].spec.is_probe
            assert fast.given[0].spec.is_probe
            decision = (await site.decisions_about("first"))[-1]
            assert decision.spec.outcome is Outcome.DISPATCHED
            assert [score.node for score in decision.spec.scores] == ["fast", "slow"]

    play(act)


def test_a_known_type_goes_at_once(play: Play) -> None:
    async def act(site: Site) -> None:
        async with site.running(site.centre("a")), site.scheduling():
            await site.submit("first", task_type="products")
            await site.ended("first")
            before = {name for name in await site.tasks_when(lambda _: True) if name.startswith("probe")}
            await site.submit("second", task_type="products")
            after = await site.ended("second")
            assert {name for name in after if name.startswith("probe")} == before
            assert after["second"].status.phase is TaskPhase.SUCCEEDED

    play(act)
