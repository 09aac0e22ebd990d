"""Plans all waiting tasks together: those that begin now are dispatched, the others get the reason for waiting."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from time import monotonic
from typing import Final

from msgspec import structs

from controller.apiserver.registry.dispatches import Dispatch, OtherMember
from controller.apiserver.resources import Task
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.decision import Outcome as DecisionOutcome
from controller.apiserver.resources.predecessors import PredecessorEnd
from controller.apiserver.resources.task import TaskPhase, UnitChoice
from controller.common.errors import ControllerError
from controller.scheduling.costs import Costs
from controller.scheduling.fairness import in_turn
from controller.scheduling.framework.explaining import Explanation
from controller.scheduling.framework.lessons import Note
from controller.scheduling.serving.decisions import line
from controller.scheduling.serving.tasks.builds import BENCHMARK_TYPE
from controller.scheduling.serving.tasks.decisions import decision_of
from controller.scheduling.serving.tasks.graphs import Graphs, Predictions
from controller.scheduling.serving.tasks.knowledge import Knowledge, pending_of
from controller.scheduling.serving.tasks.lessons import TaskLessons
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Due, Writer, gather_limited
from controller.scheduling.tasks.deciding import Verdict, devices_of
from controller.scheduling.tasks.explaining import explained
from controller.scheduling.tasks.graphs.walking import READY, Standing
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from controller.scheduling.tasks.transfers import Ways
from controller.scheduling.tasks.values import CentresView, Options, PendingTask

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


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A task's new reason for waiting, the decision to keep, and the predecessors that have ended."""

    task: Task
    phase: TaskPhase
    reason: str
    spec: DecisionSpec | None
    ends: tuple[PredecessorEnd, ...]


@dataclass(slots=True)
class _Round:
    """One plan of all waiting tasks, and what is to be written after it."""

    plan: Plan
    being_probed: Callable[[str], bool]
    predictions: Predictions
    left_ahead: int
    """Number of tasks that may still be planned before their predecessors have ended."""
    due: list[_Due] = field(default_factory=list)
    waiting: list[_Waiting] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        """True if no more reasons for waiting are written in this round."""
        return len(self.waiting) >= _MOST_WRITTEN


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
        self._graphs = Graphs(view, writer)
        self._reported: dict[str, str] = {}
        self._unknown_profiles: set[str] = set()

    async def dispatch(self, now_ns: int, wall_ns: int) -> bool:
        """Plan all waiting tasks, dispatch those that begin now, update the others; return whether more could be sent.

        Only the words of decisions are kept, because a task's intermediate results take room for each of its options.
        """
        standings = await self._graphs.walk(self._is_mine)
        tasks = {task.metadata.name: task for task in self._view.waiting() if self._is_mine(task)}
        self._reported = {name: key for name, key in self._reported.items() if name in tasks}
        if not tasks:
            return False
        made = [self._pending(task, standings.get(name, READY)) for name, task in tasks.items()]
        await self._knowledge.hours.read(made, wall_ns)
        view = self._knowledge.centres_view(now_ns, wall_ns, self._costs(), made)
        plan = Plan(view, self._settings.wait_cost)
        being_probed = cache(partial(self._knowledge.is_being_probed, view=view))
        current = _Round(plan, being_probed, self._graphs.predictions(wall_ns), self._settings.ahead)
        breath_s = monotonic()
        ordered = self._in_turn(tasks, self._ranked(tasks, standings, made, view, wall_ns))
        # Units that are kept for tasks which cannot begin yet would idle: on hetero_spotri that took 7 % longer.
        ordered.sort(key=lambda pending: not standings.get(pending.name, READY).is_ready)
        for pending in ordered[: self._settings.most]:
            if monotonic() - breath_s > _BREATH_S:
                await asyncio.sleep(0)
                breath_s = monotonic()
            task, standing = tasks[pending.name], standings.get(pending.name, READY)
            # Nothing more can begin, and the reason for waiting is already written.
            if plan.is_full and task.status.reasons and _is_recorded(task, standing):
                continue
            status = self._decide(current, task, standing, pending, wall_ns)
            if status is not None:
                current.waiting.append(status)
            if len(current.due) >= _MOST_DUE:
                break
        await self._send_all(current.due)
        await gather_limited(self._write_status(status) for status in current.waiting)
        return len(current.due) >= _MOST_DUE

    def _decide(
        self, current: _Round, task: Task, standing: Standing, pending: PendingTask, wall_ns: int
    ) -> _Waiting | None:
        """Plan a task, which is then due, or return what to write if that is new."""
        if standing.cancelled:
            return None  # others have written it meanwhile
        if not standing.is_ready:
            following = None
            if current.left_ahead > 0 and not current.plan.is_full and not standing.is_stuck:
                following = current.predictions.ahead(task, pending, standing)
            if following is None:
                return None if current.is_full else self._held_back(task, standing)
            pending, current.left_ahead = following, current.left_ahead - 1
        try:
            verdict = self._verdict(current.plan, task, pending, wall_ns, current.being_probed)
            current.predictions.note(verdict)
            if standing.is_ready and verdict.option is not None and verdict.start_s <= 0:
                current.due.append(self._due(task, verdict))
                return None
            return None if current.is_full else self._new_status(task, standing, verdict)
        except ControllerError as error:  # raised by a policy; must not hold up other tasks
            return _Waiting(task, TaskPhase.PENDING, line(str(error)), None, standing.ends)

    def _ranked(
        self,
        tasks: Mapping[str, Task],
        standings: Mapping[str, Standing],
        pending: Sequence[PendingTask],
        view: CentresView,
        wall_ns: int,
    ) -> Iterator[PendingTask]:
        """Yield tasks with their ranks in their graphs, unless their profiles order by arrival."""
        by_name = {task.name: task for task in pending}

        def run_s(task: Task) -> float:
            return self._options(self._profiles[task.spec.profile], by_name[task.metadata.name], wall_ns).mean_s

        if not any(standing.awaited for standing in standings.values()):
            yield from pending
            return
        mean_s_per_byte = Ways(view.costs, view.centres).mean_s_per_byte
        ranks = self._graphs.ranked(tasks, standings, run_s, mean_s_per_byte)
        for task in pending:
            is_ranked = self._profiles[tasks[task.name].spec.profile].order == "rank"
            rank_s, since_ns = ranks.rank_s.get(task.name, 0.0), ranks.since_ns.get(task.name)
            yield replace(task, rank_s=rank_s, graph_since_ns=since_ns) if is_ranked else task

    def _in_turn(self, tasks: Mapping[str, Task], pending: Iterable[PendingTask]) -> list[PendingTask]:
        """Return tasks by priority, with accounts taking turns within a priority, each in its own order."""
        weights, held = self._view.weights, dict[str, float]()
        for task in self._view.tasks.values():
            if task.is_held:
                account = task.metadata.account
                held[account] = held.get(account, 0.0) + sum(task.held_units.values()) / weights.of(account)
        ordered = order_of(pending)
        accounts = {name: task.metadata.account for name, task in tasks.items()}
        return [
            task
            for _, level in groupby(ordered, key=lambda task: task.priority)
            for task in in_turn(
                level,
                lambda task: accounts[task.name],
                lambda task: task.centres * max(task.units, default=1) / weights.of(accounts[task.name]),
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

    def _pending(self, task: Task, standing: Standing) -> PendingTask:
        name = self._view.type_of(task)
        pending = pending_of(task, name, self._knowledge.kernels_of(name))
        is_ranked = bool(self._profiles[task.spec.profile].benchmark)  # by probes that exist, whatever its type
        return replace(
            pending,
            measures_itself=not is_ranked and bool(self._knowledge.problem_of(name)),
            reads=(*pending.reads, *standing.reads),
        )

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
        known_type = self._knowledge.known_type(pending.task_type, pending.units, pending.expected_s)
        return self._knowledge.options(profile, known_type, wall_ns)

    def _due(self, task: Task, verdict: Verdict) -> _Due:
        option = verdict.option
        assert option is not None
        assert verdict.row is not None
        options, profile = verdict.timed.options, self._profiles[task.spec.profile]
        high = max(float(options.high[row]) for row in verdict.rows)
        others = (options.items[row] for row in verdict.others)
        item = Dispatch(
            task=task.metadata.name,
            centre=option.offer[0],
            unit=None if task.spec.choice is UnitChoice.CENTRE else option.offer[1],
            units=option.units,
            expected_s=high if math.isfinite(high) and not profile.benchmark else None,
            operator_devices=devices_of(profile, verdict),
            others=tuple(
                OtherMember(centre=other.offer[0], unit=other.offer[1], units=other.units) for other in others
            ),
        )
        return _Due(task, item, self._decision(task, verdict)[0], self._lessons.note(task, verdict))

    async def _send_all(self, due: Sequence[_Due]) -> None:
        """Dispatch tasks in the order of the plan, many at once; a refused one does not hold up the others."""
        dispatched = await self._writer.dispatch_each([Due(entry.task, entry.item, entry.spec) for entry in due])
        for entry, is_dispatched in zip(due, dispatched, strict=True):
            if is_dispatched:
                self._reported.pop(entry.item.task, None)
                self._lessons.dispatched(entry.task, entry.note)

    def _new_status(self, task: Task, standing: Standing, verdict: Verdict) -> _Waiting | None:
        """Return a task's new reason for waiting, and the decision to keep; None if unchanged."""
        type_name, ends = verdict.task.task_type, standing.ends
        if not standing.is_ready:
            return self._held_back(task, standing, verdict)
        if verdict.option is None and (doing := self._knowledge.probing_line(type_name)):
            return _Waiting(task, TaskPhase.PROBING, doing, None, ends)
        spec, why = self._decision(task, verdict)
        lacks_probe = verdict.option is None and not verdict.task.measures_itself
        problem = self._knowledge.problem_of(type_name) if lacks_probe else ""
        if not self._is_news(task, standing, _kind_of(verdict, why) + problem):
            return None
        reason = line(f"{spec.reason}; {problem}" if problem else spec.reason)
        return _Waiting(task, TaskPhase.PENDING, reason, spec, ends)

    def _held_back(self, task: Task, standing: Standing, verdict: Verdict | None = None) -> _Waiting | None:
        """Return the reason of a task whose predecessors have not ended, with the plan for it; None if unchanged."""
        offer = None if verdict is None or verdict.option is None else verdict.option.offer
        # Plans change with every end: one that moves to another centre is not written again until a predecessor ends.
        if not self._is_news(task, standing, f"{standing.reason}; planned: {offer is not None}"):
            return None
        if verdict is None or offer is None:
            return _Waiting(task, TaskPhase.PENDING, line(standing.reason), None, standing.ends)
        spec, _ = self._decision(task, verdict)
        reason = line(f"{standing.reason}; planned: {spec.reason}")
        planned = structs.replace(spec, outcome=DecisionOutcome.WAITING, reason=reason)
        return _Waiting(task, TaskPhase.PENDING, reason, planned, standing.ends)

    def _is_news(self, task: Task, standing: Standing, key: str) -> bool:
        """Return whether a reason, without its figures, has not been written yet, and note it."""
        name = task.metadata.name
        if self._reported.get(name) == key and task.status.reasons and _is_recorded(task, standing):
            return False
        self._reported[name] = key
        return True

    async def _write_status(self, status: _Waiting) -> None:
        """Write why a task waits, and keep a decision that has led to nothing yet."""
        task = status.task
        if status.spec is not None and task.status.reasons != (status.reason,):
            await self._writer.keep(task.metadata.name, status.spec)
        await self._writer.tell(task, status.phase, status.reason, status.ends)

    def _decision(self, task: Task, verdict: Verdict) -> tuple[DecisionSpec, Explanation]:
        profile, now_ns = self._profiles[task.spec.profile], self._writer.now_ns()
        why = explained(profile, verdict, most=self._settings.explained_centres)
        spec = decision_of(
            profile, verdict, why, scheduler=self._writer.name, begun_ns=verdict.timed.view.now_ns, decided_ns=now_ns
        )
        return spec, why


def _is_recorded(task: Task, standing: Standing) -> bool:
    """Return whether a task's record has all predecessors that have ended; otherwise its reason is outdated."""
    return task.status.predecessors == standing.ends


def _kind_of(verdict: Verdict, why: Explanation) -> str:
    """Return a decision without its figures, which change constantly."""
    if verdict.option is not None:
        return f"waits for {verdict.option.offer}"
    return why.summary
