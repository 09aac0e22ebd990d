"""Plans all waiting tasks together: those that begin now are dispatched, the others get the reason for waiting."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby
from time import monotonic
from typing import Final

from controller.apiserver.registry.dispatches import Dispatch
from controller.apiserver.resources import Task
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.task import TaskPhase, UnitChoice
from controller.common.errors import ControllerError
from controller.scheduling.costs import Costs
from controller.scheduling.fairness import in_turn
from controller.scheduling.framework.explaining import Explanation
from controller.scheduling.framework.lessons import Note
from controller.scheduling.serving.decisions import line
from controller.scheduling.serving.tasks.builds import BENCHMARK_TYPE
from controller.scheduling.serving.tasks.decisions import decision_of
from controller.scheduling.serving.tasks.knowledge import Knowledge, pending_of
from controller.scheduling.serving.tasks.lessons import TaskLessons
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Due, Writer, gather_limited
from controller.scheduling.tasks.deciding import Verdict, devices_of
from controller.scheduling.tasks.explaining import explained
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from controller.scheduling.tasks.values import Options, PendingTask

LOGGER: Final = logging.getLogger("millrace.scheduler")
_BREATH_S: Final = 0.05
"""Time after which planning yields to other tasks of the event loop."""
_MOST_DUE: Final = 256
"""Tasks dispatched per round; the next one follows at once."""
_MOST_WRITTEN: Final = 256
"""Tasks whose reason for waiting is written per round; the others follow in the next."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A task to dispatch now, and why."""

    task: Task
    item: Dispatch
    spec: DecisionSpec
    note: Note | None


class Dispatching:
    """Plans and dispatches."""

    def __init__(
        self,
        view: TasksView,
        knowledge: Knowledge,
        settings: TaskSettings,
        *,
        profiles: Mapping[str, TaskProfile],
        writer: Writer,
        costs: Costs,
        lessons: TaskLessons,
    ) -> None:
        self._view, self._knowledge, self._settings = view, knowledge, settings
        self._lessons = lessons
        self._profiles, self._writer, self._costs = profiles, writer, costs
        self._reported: dict[str, str] = {}
        self._unknown_profiles: set[str] = set()

    async def dispatch(self, now_ns: int, wall_ns: int) -> bool:
        """Plan all waiting tasks, dispatch those that begin now, update the others; return whether more could be sent.

        Only the words of decisions are kept, because a task's intermediate results take room for each of its options.
        """
        tasks = {task.metadata.name: task for task in self._view.waiting() if self._is_mine(task)}
        self._reported = {name: key for name, key in self._reported.items() if name in tasks}
        if not tasks:
            return False
        pending = self._in_turn(tasks)[: self._settings.most]
        await self._knowledge.hours.read(pending, wall_ns)
        plan = Plan(self._knowledge.centres_view(now_ns, wall_ns, self._costs(), pending), self._settings.wait_cost)
        being_probed = cache(partial(self._knowledge.is_being_probed, view=plan.view))
        due, pending_status = list[_Due](), list[tuple[Task, TaskPhase, str, DecisionSpec | None]]()
        breath_s = monotonic()
        for pending_task in pending:
            if monotonic() - breath_s > _BREATH_S:
                await asyncio.sleep(0)
                breath_s = monotonic()
            task = tasks[pending_task.name]
            # Nothing more can begin, and the reason for waiting is already written.
            if plan.is_full and task.status.reasons:
                continue
            try:
                verdict = self._verdict(plan, task, pending_task, wall_ns, being_probed)
                entry = self._due(task, verdict) if verdict.option is not None and verdict.start_s <= 0 else None
            except ControllerError as error:  # raised by a policy; must not hold up other tasks
                pending_status.append((task, TaskPhase.PENDING, line(str(error)), None))
                continue
            if entry is not None:
                due.append(entry)
            elif len(pending_status) < _MOST_WRITTEN and (status := self._new_status(task, verdict)) is not None:
                pending_status.append(status)
            if len(due) >= _MOST_DUE:
                break
        await self._send_all(due)
        await gather_limited(self._write_status(*status) for status in pending_status)
        return len(due) >= _MOST_DUE

    def _in_turn(self, tasks: Mapping[str, Task]) -> list[PendingTask]:
        """Return tasks by priority, with accounts taking turns within a priority, each in order of arrival."""
        weights, held = self._view.weights, dict[str, float]()
        for task in self._view.tasks.values():
            if task.is_held:
                account = task.metadata.account
                held[account] = held.get(account, 0.0) + (task.status.units or 0) / weights.of(account)
        ordered = order_of(self._pending(task) for task in tasks.values())
        accounts = {name: task.metadata.account for name, task in tasks.items()}
        return [
            task
            for _, level in groupby(ordered, key=lambda task: task.priority)
            for task in in_turn(
                level,
                lambda task: accounts[task.name],
                lambda task: max(task.units, default=1) / weights.of(accounts[task.name]),
                held,
            )
        ]

    def _is_mine(self, task: Task) -> bool:
        if task.spec.is_probe or task.spec.asks:
            return False
        if task.spec.profile in self._profiles:
            return True
        if task.spec.profile not in self._unknown_profiles:
            self._unknown_profiles.add(task.spec.profile)
            LOGGER.warning("tasks of profile %s are left to another scheduler: no such profile here", task.spec.profile)
        return False

    def _pending(self, task: Task) -> PendingTask:
        name = self._view.type_of(task)
        pending = pending_of(task, name, self._knowledge.kernels_of(name))
        is_ranked = bool(self._profiles[task.spec.profile].benchmark)  # by probes that exist, whatever its type
        return replace(pending, measures_itself=not is_ranked and bool(self._knowledge.problem_of(name)))

    def _verdict(
        self, plan: Plan, task: Task, pending: PendingTask, wall_ns: int, being_probed: Callable[[str], bool]
    ) -> Verdict:
        """Return the decision about a task: none while its type's first probes are in progress."""
        profile, name = self._profiles[task.spec.profile], pending.task_type
        options = self._options(profile, pending, wall_ns)
        first = BENCHMARK_TYPE if profile.benchmark else name
        if not (pending.centre and pending.unit) and being_probed(first):
            return Verdict.nothing(pending, plan.timed(pending, options))
        return plan.decide(profile, pending, options)

    def _options(self, profile: TaskProfile, pending: PendingTask, wall_ns: int) -> Options:
        return self._knowledge.options(profile, self._knowledge.known_type(pending.task_type, pending.units), wall_ns)

    def _due(self, task: Task, verdict: Verdict) -> _Due:
        option = verdict.option
        assert option is not None
        assert verdict.row is not None
        high, profile = float(verdict.timed.options.high[verdict.row]), self._profiles[task.spec.profile]
        item = Dispatch(
            task=task.metadata.name,
            centre=option.offer[0],
            unit=None if task.spec.choice is UnitChoice.CENTRE else option.offer[1],
            units=option.units,
            expected_s=high if math.isfinite(high) and not profile.benchmark else None,
            operator_devices=devices_of(profile, verdict),
        )
        return _Due(task, item, self._decision(task, verdict)[0], self._lessons.note(task, verdict))

    async def _send_all(self, due: Sequence[_Due]) -> None:
        """Dispatch tasks in the order of the plan, many at once; a refused one does not hold up the others."""
        dispatched = await self._writer.dispatch_each([Due(entry.task, entry.item, entry.spec) for entry in due])
        for entry, is_dispatched in zip(due, dispatched, strict=True):
            if is_dispatched:
                self._reported.pop(entry.item.task, None)
                self._lessons.dispatched(entry.task, entry.note)

    def _new_status(self, task: Task, verdict: Verdict) -> tuple[Task, TaskPhase, str, DecisionSpec | None] | None:
        """Return a task's new reason for waiting, and the decision to keep; None if unchanged."""
        name, type_name = task.metadata.name, verdict.task.task_type
        if verdict.option is None and (doing := self._knowledge.probing_line(type_name)):
            return (task, TaskPhase.PROBING, doing, None)
        spec, why = self._decision(task, verdict)
        lacks_probe = verdict.option is None and not verdict.task.measures_itself
        problem = self._knowledge.problem_of(type_name) if lacks_probe else ""
        key = _kind_of(verdict, why) + problem
        if self._reported.get(name) == key and task.status.reasons:
            return None
        self._reported[name] = key
        return (task, TaskPhase.PENDING, line(f"{spec.reason}; {problem}" if problem else spec.reason), spec)

    async def _write_status(self, task: Task, phase: TaskPhase, reason: str, spec: DecisionSpec | None) -> None:
        """Write why a task waits, and keep a decision that has led to nothing yet."""
        if spec is not None and task.status.reasons != (reason,):
            await self._writer.keep(task.metadata.name, spec)
        await self._writer.tell(task, phase, reason)

    def _decision(self, task: Task, verdict: Verdict) -> tuple[DecisionSpec, Explanation]:
        profile, now_ns = self._profiles[task.spec.profile], self._writer.now_ns()
        why = explained(profile, verdict, most=self._settings.explained_centres)
        spec = decision_of(
            profile, verdict, why, scheduler=self._writer.name, begun_ns=verdict.timed.view.now_ns, decided_ns=now_ns
        )
        return spec, why


def _kind_of(verdict: Verdict, why: Explanation) -> str:
    """Return a decision without its figures, which change constantly."""
    if verdict.option is not None:
        return f"waits for {verdict.option.offer}"
    return why.summary
