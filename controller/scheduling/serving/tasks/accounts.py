"""Scores of results, and the resulting costs of ended tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import ProbeResult, Task
from controller.probing.evaluation import Policy, policy_of, scored
from controller.scheduling.serving.tasks.view import TasksView, has_ended
from controller.scheduling.serving.tasks.writing import Writer, gather_limited
from controller.scheduling.tasks.prices import cost_of
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.scheduler")
_MOST = 256
"""Writes per round; the rest follows in the next."""


class Accounts:
    """Writes each score and cost once, and all scores anew once for each change of the policy.

    The policy is the API server's of the name in the settings, or else that of the settings. Results that another
    scheduler scores by another policy stay as they are, marked with it: two schedulers do not overwrite one another.
    """

    def __init__(self, view: TasksView, settings: TaskSettings, writer: Writer) -> None:
        self._view, self._settings, self._writer = view, settings, writer
        self._own = settings.scoring
        self._in_force: tuple[str, str] | None = None
        self._outdated: set[str] = set()

    def take_policy(self, policy: Policy) -> None:
        """Use another policy of the settings from the next round on."""
        self._own = policy

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        stored = self._view.policies.get(self._own.name)
        return self._own if stored is None else policy_of(stored)

    @property
    def about_policy(self) -> str:
        """The policy in force and its source."""
        is_stored = self._own.name in self._view.policies
        return f"{self.policy.version}, {'of the API server' if is_stored else 'of the settings'}"

    async def settle(self) -> None:
        """Write missing and outdated scores of results, then the costs of ended tasks."""
        policy = self.policy
        self._note_policy(policy)
        results = self._view.results
        unscored = [name for name, result in results.items() if not result.status.policy and result.status.runs]
        self._outdated = {
            name for name in self._outdated if name in results and _mark_of(results[name]) != self._in_force
        }
        due = (*unscored, *sorted(self._outdated))
        await gather_limited(self._score(policy, results[name]) for name in due[:_MOST])
        unpaid = [task for task in self._view.tasks.values() if has_ended(task) and task.status.cost is None]
        charged = [
            task for task in unpaid if task.status.dispatched_ns and task.status.finished_ns and task.status.units
        ]
        await gather_limited(self._charge(policy, task) for task in charged[:_MOST])

    def _note_policy(self, policy: Policy) -> None:
        """Mark the results with scores of another policy as outdated, if this one is new."""
        mark = (policy.name, policy.digest)
        if self._in_force == mark:
            return
        self._in_force = mark
        self._outdated = {
            name
            for name, result in self._view.results.items()
            if result.status.policy and result.status.runs and _mark_of(result) != mark
        }
        LOGGER.info("scoring policy %s; %d results get new scores", self.about_policy, len(self._outdated))

    async def _score(self, policy: Policy, result: ProbeResult) -> None:
        status = scored(policy, result.status)
        if await self._writer.result_status(replace(result, status=status)):
            self._outdated.discard(result.metadata.name)

    async def _charge(self, policy: Policy, task: Task) -> None:
        status = task.status
        held_s = max((status.finished_ns or 0) - (status.started_ns or status.dispatched_ns or 0), 0) / NS_PER_S
        # A centre cannot charge for longer than the server has seen the task hold its units.
        seconds = held_s if status.run_time_s is None else min(status.run_time_s, held_s)
        cost = cost_of(self._settings.prices, task.all_units, seconds, self._score_at(policy, task))
        reasons = (*status.reasons, f"cost {cost.amount:.4g}: {cost.reason}")
        await self._writer.status(task, cost=cost.amount, reasons=reasons)

    def _score_at(self, policy: Policy, task: Task) -> float | None:
        """Return the newest score of the task's type where it ran, else the newest of any probe there.

        A score comes from the type's own probe if possible: how good a centre is depends on the work.
        """
        name, location = self._view.type_of(task), (task.status.centre, task.status.unit)
        results = [
            result
            for result in self._view.results.values()
            if (result.spec.centre, result.status.unit or result.spec.unit) == location and result.status.runs
        ]
        own = [result for result in results if result.spec.task_type == name]
        return next(chain(_scores(policy, own), _scores(policy, results)), None)


def _scores(policy: Policy, results: list[ProbeResult]) -> Iterator[float]:
    """Yield the scores of results by a policy, the newest first; results without a score are left out."""
    mark = (policy.name, policy.digest)
    for result in sorted(results, key=lambda result: -result.metadata.created_ns):
        is_current = _mark_of(result) == mark
        score = result.status.score if is_current else scored(policy, result.status).score
        if score is not None:
            yield score


def _mark_of(result: ProbeResult) -> tuple[str, str]:
    return (result.status.policy, result.status.policy_digest)
