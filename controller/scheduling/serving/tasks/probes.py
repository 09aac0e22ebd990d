"""Probes: built for new types, ordered when due, and sent to free units."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from controller.apiserver.registry.dispatches import Dispatch
from controller.apiserver.resources import Centre, Metadata, ProbeTask, Task
from controller.apiserver.resources.decision import Outcome
from controller.apiserver.resources.task import Program, ProgramKind, TaskPhase, TaskSpec, UnitChoice
from controller.probing.errors import ProbeError
from controller.probing.library import KernelLibrary
from controller.scheduling.serving.tasks.builds import (
    BENCHMARK_TYPE,
    NETWORK_KERNEL,
    NETWORK_TYPE,
    Building,
    benchmark,
    network_check,
)
from controller.scheduling.serving.tasks.decisions import plain_decision
from controller.scheduling.serving.tasks.knowledge import Knowledge, pending_of
from controller.scheduling.serving.tasks.view import TasksView, has_ended
from controller.scheduling.serving.tasks.writing import Writer
from controller.scheduling.tasks.names import name_of
from controller.scheduling.tasks.probing import Order, Place, Reason, probes_due
from controller.scheduling.tasks.profiles import TaskProfile
from controller.scheduling.tasks.settings import TaskSettings
from controller.scheduling.tasks.units import Chosen, Step, WaitingProbe, choose_unit
from controller.scheduling.tasks.values import CentreState, PendingTask

LOGGER: Final = logging.getLogger("millrace.scheduler")
LABELS: Final = {"millrace.probe": "true"}
PROFILE: Final = "probe"
NO_CENTRE: Final = "it states no centre: it waits until it is dispatched to one"
NO_UNIT: Final = "it carries its text but states no unit: it waits until it is dispatched to one"


class Probes:
    """Manages probes; `problems` says why a type has none."""

    def __init__(self, view: TasksView, knowledge: Knowledge, settings: TaskSettings, writer: Writer) -> None:
        self._view, self._knowledge, self._settings, self._writer = view, knowledge, settings, writer
        self._building = Building(view, settings.ratio, writer.create, knowledge.problems)
        self._not_built: dict[str, str] = {}
        self._by_benchmark = {profile.name for profile in settings.profiles if profile.benchmark}

    async def build(self, wall_ns: int) -> None:
        """Build the probes of types that have none, or note what a builder process cannot build."""
        if self._settings.probing.builds:
            await self._building.build()
        else:
            self._building.expect(wall_ns, self._settings.probing.patience_s)

    async def build_benchmarks(self, profiles: Mapping[str, TaskProfile]) -> None:
        """Create the probe tasks that the profiles of waiting tasks rank all centres by."""
        used = {task.spec.profile for task in self._view.waiting() if not task.spec.is_probe}
        names = {name for profile in used & profiles.keys() for name in profiles[profile].benchmark}
        for name in sorted(names - self._view.probes.keys() - self._not_built.keys()):
            await self._build(name, partial(benchmark, name))

    async def build_network_check(self) -> None:
        """Create the probe task that checks networks, once a centre can run it."""
        offers = self._knowledge.offers()
        if (
            self._settings.probing.network_period_s is None
            or NETWORK_TYPE in self._view.probes.keys() | self._not_built
        ):
            return
        if any(NETWORK_KERNEL in offer.operators for offer in offers):
            await self._build(NETWORK_TYPE, network_check)

    async def _build(self, name: str, make: Callable[[KernelLibrary], ProbeTask]) -> None:
        try:
            probe = make(self._library())
        except ProbeError as error:
            self._not_built[name] = str(error)
            LOGGER.warning("%s", error)
        else:
            await self._writer.create(probe)

    def _library(self) -> KernelLibrary:
        return KernelLibrary(self._view.kernels())

    async def order(self, now_ns: int, wall_ns: int) -> None:
        """Create the tasks of due probes; they are dispatched like those of users."""
        waiting = self.waiting_by_type()
        needs = self._knowledge.needs(waiting)
        if not needs:
            return
        states = {
            name: CentreState(name, self._view.problem_of(centre, now_ns))
            for name, centre in self._view.centres.items()
        }
        places, probe_states = self._knowledge.places(), self._knowledge.probes_known()
        for order in probes_due(needs, places, states, probe_states, settings=self._settings.probing, now_ns=wall_ns):
            if await self._writer.create(
                task_of(order, self._settings.probing.repetitions, self._settings.probing.limit_s)
            ):
                LOGGER.info("probe %s goes to %s of %s: %s", order.probe, order.unit, order.centre, order.reason)

    def waiting_by_type(self) -> Mapping[str, Sequence[PendingTask]]:
        """Return the waiting tasks, except probes, by type; those of a benchmark's profile also by its type."""
        by_type: defaultdict[str, list[PendingTask]] = defaultdict(list)
        for task in self._view.waiting():
            if not task.spec.is_probe and not task.spec.asks:
                name = self._view.type_of(task)
                by_type[name].append(pending_of(task, name, frozenset()))
                if task.spec.profile in self._by_benchmark:
                    by_type[BENCHMARK_TYPE].append(pending_of(task, BENCHMARK_TYPE, frozenset()))
        return by_type

    async def send(self, now_ns: int) -> None:
        """Dispatch waiting probes onto free units, first come, first served."""
        waiting = [task for task in self._view.waiting() if task.spec.is_probe or task.spec.asks]
        for task in sorted(
            waiting, key=lambda task: (-task.spec.priority, task.metadata.created_ns, task.metadata.name)
        ):
            await self._send(task, now_ns)

    async def _send(self, task: Task, now_ns: int) -> None:
        name = task.spec.centre
        if name is None:
            # Created by hand, and perhaps about to be dispatched by hand.
            await self._writer.tell(task, TaskPhase.PENDING, NO_CENTRE)
            return
        centre = await self._centre(name)
        if centre is None:
            await self._writer.status(task, phase=TaskPhase.FAILED, reasons=(f"there is no centre {name}",))
            return
        if problem := self._view.problem_of(centre, now_ns):
            await self._writer.tell(task, TaskPhase.PENDING, f"centre {name}: {problem}")
            return
        await self._read_probe(task)
        places = tuple(place for place in self._knowledge.places() if place.offer.centre == name)
        chosen = self._chosen(task, name, places)
        match chosen.step:
            case Step.DISPATCH:
                await self._dispatch(task, name, chosen)
            case Step.ASK:
                await self._ask(task, name)
                await self._writer.tell(task, TaskPhase.PENDING, chosen.reason)
            case Step.WAIT:
                await self._writer.tell(task, TaskPhase.PENDING, chosen.reason)
            case Step.FAIL:
                await self._writer.status(task, phase=TaskPhase.FAILED, reasons=(chosen.reason,))

    async def _centre(self, name: str) -> Centre | None:
        """Return a centre; ask the server for an unknown one, as the watches of kinds are not in step."""
        if name not in self._view.centres:
            await self._writer.read_again(Centre, name)
        return self._view.centres.get(name)

    async def _read_probe(self, task: Task) -> None:
        """Ask the server for the probe task that a task names, if it is unknown."""
        spec, entry = task.spec, task.spec.program.entry
        if not spec.asks and not spec.program.text and entry not in self._view.probes:
            await self._writer.read_again(ProbeTask, entry)

    def _chosen(self, task: Task, centre: str, places: Sequence[Place]) -> Chosen:
        spec = task.spec
        if spec.asks:
            return Chosen(Step.DISPATCH, "it only asks, and holds no units")
        probe = self._view.probe(spec.program.entry)
        if probe is None and not spec.program.text:
            why = self._view.problems.get(spec.program.entry, "it does not exist")
            return Chosen(Step.FAIL, f"probe task {spec.program.entry}: {why}")
        kernels = frozenset() if probe is None else frozenset(probe.kernels)
        if probe is None and spec.choice is not UnitChoice.CENTRE and spec.unit is None:
            return Chosen(Step.WAIT, NO_UNIT)
        question = self._view.tasks.get(_question_name(task))
        if question is not None and question.status.phase is TaskPhase.FAILED:
            return Chosen(Step.FAIL, f"centre {centre} did not answer: {'; '.join(question.status.reasons)}")
        answered = question.status.could_run if question is not None and has_ended(question) else None
        units = 0 if spec.leaves_count else max(spec.units, default=1)
        return choose_unit(WaitingProbe(centre, kernels, spec.choice, spec.unit, units, answered), places)

    async def _dispatch(self, task: Task, centre: str, chosen: Chosen) -> None:
        name = task.metadata.name
        why = task.metadata.labels.get("millrace.probe-reason", Reason.DEMAND.value)
        decision = plain_decision(
            name,
            Outcome.DISPATCHED,
            f"{centre}: {chosen.reason}; {why}",
            centre,
            scheduler=self._writer.name,
            profile=PROFILE,
            decided_ns=self._writer.now_ns(),
        )
        item = Dispatch(
            task=name, centre=centre, unit=chosen.unit, units=chosen.units, expected_s=self._settings.probing.expected_s
        )
        await self._writer.dispatch(task, item, decision)

    async def _ask(self, task: Task, centre: str) -> None:
        """Ask a centre which of its units could run a probe, with a task that holds nothing."""
        name = _question_name(task)
        if name in self._view.tasks:
            return
        spec = TaskSpec(
            program=task.spec.program,
            is_probe=True,
            asks=True,
            centre=centre,
            task_type=task.spec.task_type,
            limit_s=60.0,
        )
        await self._writer.create(Task(metadata=Metadata(name=name, labels=LABELS), spec=spec))


def task_of(order: Order, repetitions: int, limit_s: float) -> Task:
    """Return the task of a due probe; its name follows from its contents, so that it is never created twice."""
    labels = {
        **LABELS,
        "millrace.probe-reason": order.reason.value,
        "millrace.probe-number": str(order.number),
    }
    spec = TaskSpec(
        program=Program(kind=ProgramKind.PROBE, entry=order.probe),
        task_type=order.task_type,
        is_probe=True,
        centre=order.centre,
        unit=order.unit,
        units=order.counts,
        repetitions=repetitions,
        limit_s=limit_s,
    )
    name = name_of("probe", order.probe, order.centre, order.unit, order.number)
    return Task(metadata=Metadata(name=name, labels=labels), spec=spec)


def _question_name(task: Task) -> str:
    return name_of("ask", task.metadata.name, task.metadata.uid)
