"""Scores by policies that change, or that differ between schedulers."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry

from controller.apiserver.client import ApiClient
from controller.apiserver.resources import Metadata, ProbeResult
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.probing.evaluation import Policy
from controller.scheduling.serving.tasks.accounts import Accounts
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Writer
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.clock import MonotonicClock
from dataplane.config import loads
from tests.controller.scheduling.serving.tasks.conftest import Play, Site


def of(points: int) -> Policy:
    return loads(f"run_time_s: {{intervals: [{{points: {points}}}]}}", Policy)


class Scorer:
    """A scheduler's accounts; `settle` reads all results first, as a watch would."""

    def __init__(self, client: ApiClient, policy: Policy) -> None:
        self._client, self._view, clock = client, TasksView(), MonotonicClock()
        metrics = TaskMetrics(CollectorRegistry())
        writer = Writer(client, self._view, metrics, name="s", clock=clock, now_ns=time.time_ns)
        self.accounts = Accounts(self._view, TaskSettings(scoring=policy), writer)

    async def settle(self) -> set[tuple[str, float | None]]:
        """Return versions and scores of all results after a round."""
        self._view.take_all(ProbeResult, (await self._client.of(ProbeResult).list()).items, 0)
        await self.accounts.settle()
        listing = await self._client.of(ProbeResult).list()
        return {(result.status.scored_by, result.status.score) for result in listing.items}


def test_schedulers_with_different_policies_do_not_take_turns(play: Play) -> None:
    async def act(site: Site) -> None:
        results = site.client.of(ProbeResult)
        for name in ("r1", "r2"):
            spec = ProbeResultSpec(probe="p", centre="a")
            made = await results.create(ProbeResult(metadata=Metadata(name=name), spec=spec))
            status = ProbeResultStatus(runs=(ProbeRun(units=1, run_times_s=(1.0,)),))
            await results.replace_status(ProbeResult(metadata=made.metadata, spec=spec, status=status))
        one, two = Scorer(site.client, of(1)), Scorer(site.client, of(2))
        first, second = {(of(1).version, 1.0)}, {(of(2).version, 2.0)}
        assert await one.settle() == first
        assert await two.settle() == second
        # The first has seen all of these results: it leaves them, marked with the other's policy.
        assert await one.settle() == second
        assert await two.settle() == second
        # Until its own policy changes.
        one.accounts.take_policy(of(3))
        assert await one.settle() == {(of(3).version, 3.0)}
        assert await two.settle() == {(of(3).version, 3.0)}

    play(act)
