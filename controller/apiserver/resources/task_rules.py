"""Rules of tasks: which specs are valid, and who may write which part of a status, when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources.kind import Kind, Own, Rights, Server, Strategy, Usage, Verb, check_secrets
from controller.apiserver.resources.predecessors import cycle_text, cycle_through
from controller.apiserver.resources.startable import environment_problem, image_problem, words_problem
from controller.apiserver.resources.task import HELD, TASK_ENDED, ProgramKind, Task, TaskPhase, TaskStatus, UnitChoice
from controller.common.errors import InvalidError, StaleError
from dataplane.rpc.access import Principal, Role

_ACTIONS: Final = (
    "centre",
    "unit",
    "units",
    "epoch",
    "operator_devices",
    "could_run",
    "dispatched_ns",
    "started_ns",
    "finished_ns",
    "exit_code",
    "run_time_s",
    "result",
    "user",
    "members",
    "stopping",
)
"""Parts of the status that only the server writes."""
_SCHEDULERS: Final = ("decision", "cost", "expected_s", "predecessors")
"""Parts of the status that centres may not write."""
_MAY_CHANGE: Final = frozenset({"priority"})
_EDGES: Final = ("after", "inputs", "outputs")
"""Parts of the spec that never change: the cycle check at creation relies on it."""


class TaskStrategy(Strategy[Task]):
    """Tasks: dispatches, picks and completions decide what they hold; the spec is fixed from then on."""

    def prepare(self, new: Task, principal: Principal, server: Server) -> Task:
        """Begin with the submitter's name."""
        return replace(new, status=TaskStatus(user=principal.name))

    def validate(self, current: Task | None, wanted: Task) -> None:
        """Refuse a spec that contradicts what the task holds, or has been, and secrets without a project."""
        if current is not None:
            _check_edges(current, wanted)
            _check_spec(current, wanted)
        _check_data(wanted)
        _check_centres(wanted)
        program = wanted.spec.program
        check_secrets("Task", wanted.metadata, named=bool(program.secrets))
        if current is None or current.spec.program != program:
            if program.kind is ProgramKind.CONTAINER and program.entry and (problem := image_problem(program.entry)):
                raise InvalidError(f"Task {wanted.metadata.name}: entry: {problem}")
            # The entry point is the first word.
            arguments = words_problem(("program", *program.arguments))
            if problem := arguments or environment_problem(program.environment):
                part = "arguments" if arguments else "environment"
                raise InvalidError(f"Task {wanted.metadata.name}: {part}: {problem}")

    async def check_references(self, new: Task, principal: Principal, server: Server) -> None:
        """Refuse predecessors that do not exist, or that would run after the task itself."""
        names, name = new.spec.predecessors, new.metadata.name
        if not names:
            return
        existing = await server.find_all(TASK, [before for before in names if before != name])
        for before in names:
            task = existing.get(before)
            # To a user, tasks of others do not exist.
            is_hidden = task is not None and principal.role is Role.USER and not _is_of_one_account(task, new)
            if before != name and (task is None or is_hidden):
                raise InvalidError(f"Task {name}: after: there is no task {before}")
        _check_outputs(new, existing)

        def waited_for(before: str) -> tuple[str, ...]:
            task = existing.get(before) or server.cached(TASK, before)
            return () if task is None or task.status.phase in TASK_ENDED else task.spec.predecessors

        if cycle := cycle_through(name, names, waited_for):
            raise InvalidError(f"Task {name}: after: a cycle: {cycle_text(cycle)}")

    def prepare_status(self, current: Task, wanted: Task, principal: Principal, server: Server) -> Task:
        """Keep what actions write, and for centres also what schedulers write."""
        if principal.role is Role.CENTRE and current.status.members:
            return member_reported(current, wanted, principal.subject or "", server.now_ns())
        return reported(current, wanted, server.now_ns(), by_centre=principal.role is Role.CENTRE)

    def is_held(self, current: Task) -> bool:
        """Keep a deleted task until its completion."""
        return current.is_held

    def usage(self, resource: Task) -> Usage:
        """Count a task until it has ended."""
        phase = resource.status.phase
        if phase in TASK_ENDED:
            return Usage()
        waits = phase in {TaskPhase.PENDING, TaskPhase.PROBING}
        picked = resource.status.units if resource.spec.leaves_count else None
        units = max(resource.spec.units, default=picked or 1) * resource.spec.centres
        return Usage(tasks=1, pending=int(waits), units=units)

    def priority(self, resource: Task) -> int:
        """Return the priority of the spec."""
        return resource.spec.priority


def reported(current: Task, made: Task, now_ns: int, *, by_centre: bool) -> Task:
    """Return a task's new status, keeping what actions write; raise StaleError for another epoch.

    Only dispatch and completion change whether a task holds units; its start gets the server's time.
    """
    before, name = current.status, current.metadata.name
    if made.status.epoch != before.epoch:
        raise StaleError(f"Task {name} is in epoch {before.epoch}, no longer in {made.status.epoch}")
    _check_phase(name, before.phase, made.status.phase, by_centre=by_centre)
    parts = (*_ACTIONS, *_SCHEDULERS) if by_centre else _ACTIONS
    status = replace(made.status, **{part: getattr(before, part) for part in parts})
    if status.phase is TaskPhase.RUNNING and before.phase is not TaskPhase.RUNNING:
        status = replace(status, started_ns=now_ns)
    return replace(made, status=status)


def member_reported(current: Task, made: Task, centre: str, now_ns: int) -> Task:
    """Return a task's new status after a report about one of its members; raise StaleError for another epoch.

    It runs once none of its members has yet to start.
    """
    before, name = current.at(centre).status, current.metadata.name
    if made.status.epoch != before.epoch:
        raise StaleError(f"Task {name} is in epoch {before.epoch}, no longer in {made.status.epoch}")
    _check_phase(name, before.phase, made.status.phase, by_centre=True)
    members = tuple(
        replace(member, phase=made.status.phase, engine_id=made.status.engine_id) if member.centre == centre else member
        for member in current.status.members
    )
    status = replace(current.status, members=members)
    if status.phase is TaskPhase.DISPATCHED and all(member.phase is not TaskPhase.DISPATCHED for member in members):
        status = replace(status, phase=TaskPhase.RUNNING, started_ns=now_ns)
    return replace(current, status=status)


def _is_of_one_account(task: Task, other: Task) -> bool:
    return task.metadata.account == other.metadata.account


def _check_edges(current: Task, wanted: Task) -> None:
    """Raise InvalidError for other predecessors, or other data, than at creation."""
    changed = [name for name in _EDGES if getattr(current.spec, name) != getattr(wanted.spec, name)]
    if changed:
        what = " and ".join(changed)
        raise InvalidError(f"Task {current.metadata.name}: its {what} cannot change: delete it and submit it anew")


def _check_data(task: Task) -> None:
    """Raise InvalidError for predecessors of a probe, an input without a size, and an output stated twice."""
    name, spec = task.metadata.name, task.spec
    if spec.predecessors and (spec.is_probe or spec.asks):
        raise InvalidError(f"Task {name}: after: a probe has no predecessors")
    for data in spec.inputs:
        if (data.output is None) == (data.nbytes is None):
            raise InvalidError(f"Task {name}: inputs: from {data.task} either an output or a size is read")
    outputs = [output.name for output in spec.outputs]
    if twice := next((output for index, output in enumerate(outputs) if output in outputs[:index]), None):
        raise InvalidError(f"Task {name}: outputs: {twice} is given twice")


def _check_centres(task: Task) -> None:
    """Raise InvalidError for a task of several centres that only one can run."""
    spec = task.spec
    if spec.centres == 1:
        return
    problems = (
        (spec.is_probe or spec.asks, "a probe runs"),
        (spec.centre is not None, "a task with a stated centre runs"),
        (spec.choice is UnitChoice.CENTRE, "a task whose unit its centre chooses runs"),
        (bool(spec.program.tables), "SQL with tables runs"),
    )
    if problem := next((text for applies, text in problems if applies), None):
        raise InvalidError(f"Task {task.metadata.name}: centres: {problem} at one centre, not at {spec.centres}")


def _check_outputs(task: Task, existing: Mapping[str, Task]) -> None:
    """Raise InvalidError for an input that names an output which its predecessor does not state."""
    for data in task.spec.inputs:
        source = existing.get(data.task)
        stated = () if source is None else tuple(output.name for output in source.spec.outputs)
        if data.output is not None and source is not None and data.output not in stated:
            has = ", ".join(stated) or "none"
            raise InvalidError(
                f"Task {task.metadata.name}: inputs: task {data.task} has no output {data.output}; it has {has}"
            )


def _check_spec(current: Task, wanted: Task) -> None:
    """Raise StaleError for a spec that contradicts what a task holds, or has been."""
    if current.status.phase not in (*HELD, *TASK_ENDED):
        return
    fields = (name for name in current.spec.__struct_fields__ if name not in _MAY_CHANGE)
    fixed = [name for name in fields if getattr(current.spec, name) != getattr(wanted.spec, name)]
    if fixed:
        what = " and ".join(fixed)
        raise StaleError(f"Task {current.metadata.name} is {current.status.phase.value}: its {what} cannot change")


def _check_phase(name: str, before: TaskPhase, after: TaskPhase, *, by_centre: bool) -> None:
    if before in TASK_ENDED and (by_centre or after is not before):
        raise StaleError(f"Task {name} has {before.value}: this is final")
    if before in HELD and after not in HELD:
        raise StaleError(f"Task {name} holds units: it must end by a completion")
    if before not in HELD and after in HELD:
        raise StaleError(f"Task {name} is {before.value}: it must get units by a dispatch")
    if before is TaskPhase.RUNNING and after is not before:
        raise StaleError(f"Task {name} runs: it cannot become {after.value} again in this epoch")
    if before not in TASK_ENDED and after is TaskPhase.SUCCEEDED:
        raise StaleError(f"Task {name} has not run: it cannot have succeeded")


TASK = Kind(
    "Task",
    "tasks",
    Task,
    fields={
        "centre": lambda task: tuple(member.centre for member in task.status.members) or task.status.centre,
        "phase": lambda task: task.status.phase.value,
        "probe": lambda task: "true" if task.spec.is_probe else "false",
    },
    columns={
        "phase": lambda task: task.status.phase.value,
        "centre": lambda task: " ".join(member.centre for member in task.status.members) or task.status.centre,
        "units": lambda task: task.status.units,
    },
    rights=Rights(
        is_private=True,
        users_write=True,
        own={Role.CENTRE: Own("centre", frozenset({Verb.READ, Verb.STATUS, Verb.COMPLETE}))},
    ),
    strategy=TaskStrategy(),
    is_subject=True,
)
