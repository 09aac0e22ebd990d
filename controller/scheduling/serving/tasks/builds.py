"""Probe tasks of new types: built once from a task's operators, and kept for all tasks of the type."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.apiserver.resources import Metadata, ProbeTask, Task
from controller.apiserver.resources.operator_graphs import graph_of
from controller.cluster.operators import OperatorError, OperatorGraph
from controller.probing import files
from controller.probing.building import BuildSettings, build
from controller.probing.errors import ProbeError
from controller.probing.expert import loads
from controller.probing.library import KernelLibrary
from controller.probing.matching import match
from controller.probing.values import ProbeKernel
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.tasks.names import name_of
from dataplane.clock import NS_PER_S
from dataplane.errors import ConfigError

LOGGER: Final = logging.getLogger("millrace.builder")
Create = Callable[[ProbeTask], Awaitable[bool]]
"""Creates a probe task at the API server; returns whether it is new."""
BENCHMARK_TYPE: Final = "fixed-benchmark"
"""Type of the fixed benchmarks' probe tasks, which do not depend on what tasks compute."""
_BENCHMARKS: Final[Mapping[str, str]] = {"fixed-dgemm": "dgemm", "fixed-stream": "stream-triad"}
"""Probe tasks that profiles rank all centres by, and the kernel that each repeats three times."""
NETWORK_TYPE: Final = "network-check"
"""Type, and name, of the probe task that checks centres' networks."""
NETWORK_KERNEL: Final = "network-pull"
_CHECK_BYTES: Final = 4 << 20
"""Bytes that a network check reads: seconds on slow links, long enough for TCP to reach its rate on fast ones."""


def benchmark(name: str, library: KernelLibrary) -> ProbeTask:
    """Return the probe task of a fixed benchmark, as a resource; raise ProbeError for an unknown one."""
    if name not in _BENCHMARKS:
        raise ProbeError(f"there is no probe task {name} to rank centres by")
    return _fixed(name, BENCHMARK_TYPE, {"kernel": _BENCHMARKS[name], "repetitions": 3}, library)


def network_check(library: KernelLibrary) -> ProbeTask:
    """Return the probe task that checks a centre's network, as a resource; raise ProbeError without its kernel."""
    return _fixed(NETWORK_TYPE, NETWORK_TYPE, {"kernel": NETWORK_KERNEL, "sizes": {"nbytes": _CHECK_BYTES}}, library)


def _fixed(name: str, task_type: str, use: Mapping[str, object], library: KernelLibrary) -> ProbeTask:
    text = json.dumps({"millrace": 1, "name": name, "task_type": task_type, "kernels": [use]})
    try:
        probe = loads(text, library, file=name)
    except ConfigError as error:
        raise ProbeError(str(error)) from None
    return ProbeTask(metadata=Metadata(name=name), spec=files.to_spec(probe))


def graph_for(task: Task, task_type: str) -> OperatorGraph:
    """Return the operators that a type's probe tasks are built from; raise ProbeError, in one line, without any."""
    try:
        graph = graph_of(task_type, task.spec)
    except OperatorError as error:
        raise ProbeError(f"type {task_type} is new, and its operators do not form a graph: {error}") from None
    if graph is None:
        raise ProbeError(
            f"type {task_type} is new, and there is nothing to build a probe from: submit it with --trace or"
            " its operators, or write a probe task of its type"
        )
    return graph


def probes_for(
    task: Task, task_type: str, library: Iterable[ProbeKernel], settings: BuildSettings
) -> tuple[ProbeTask, ...]:
    """Return the probe tasks of a task's type, as resources; raise ProbeError, in one line, if none can be built.

    Their names follow from the type alone, so if two schedulers build them, only one writes them.
    """
    graph = graph_for(task, task_type)
    kernels = tuple(library)
    if not kernels:
        raise ProbeError(f"type {task_type} is new, and the library of probe kernels is empty")
    seconds = {operator.name: operator.seconds for operator in task.spec.operators if operator.seconds is not None}
    whole = seconds if len(seconds) == len(task.spec.operators) else None
    try:
        probes = build(graph, match(graph, kernels), settings, task_type=task_type, seconds=whole)
    except (OperatorError, ArithmeticError, ValueError, LookupError) as error:
        # A submitter may state anything about operators; none of it may stop the scheduler or its round.
        raise ProbeError(f"type {task_type}: no probe can be built from its operators: {_line(error)}") from None
    return tuple(
        ProbeTask(metadata=Metadata(name=name_of("of", task_type, number)), spec=files.to_spec(probe))
        for number, probe in enumerate(probes, 1)
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) if isinstance(error, OperatorError) else f"{type(error).__name__}: {error}"


class Building:
    """Builds for the types without probe tasks; `problems` says why one has none, with what was tried."""

    def __init__(self, view: TasksView, ratio: int, create: Create, problems: dict[str, tuple[object, str]]) -> None:
        self.problems = problems
        self._view, self._ratio, self._create = view, ratio, create

    async def build(self) -> None:
        """Build the probes of types that have none."""
        for task in self._untried():
            name = self._view.type_of(task)
            kernels, settings = KernelLibrary(self._view.kernels()).kernels(), BuildSettings(ratio=self._ratio)
            try:
                probes = await asyncio.to_thread(probes_for, task, name, kernels, settings)
            except ProbeError as error:
                self._note_problem(task, str(error))
                continue
            self.problems.pop(name, None)
            for probe in probes:
                if await self._create(probe):
                    LOGGER.info("type %s: built probe task %s", name, probe.metadata.name)

    def expect(self, wall_ns: int, patience_s: float) -> None:
        """Note the types that a builder process cannot build probes of, or has not for the length of a patience."""
        for task in self._untried():
            name = self._view.type_of(task)
            try:
                graph_for(task, name)
            except ProbeError as error:
                self._note_problem(task, str(error))
                continue
            if wall_ns > task.metadata.created_ns + patience_s * NS_PER_S:
                why = f"no builder has built its probe within {patience_s:g} s"
                self._note_problem(task, f"type {name} is new, and {why}: see `millrace probe builder serve`")

    def _untried(self) -> Sequence[Task]:
        """Return a task of each type without a probe, unless it failed before with the same task and library."""
        return [
            task
            for task in self._unknown()
            if self.problems.get(self._view.type_of(task), (None, ""))[0] != self._key(task)
        ]

    def _unknown(self) -> Sequence[Task]:
        """Return a task of each type without a probe, one that states its operators if any does."""
        types = self._view.types_with_probes()
        by_type: dict[str, Task] = {}
        for task in self._view.tasks.values():
            name = self._view.type_of(task)
            if task.spec.is_probe or name in types or (name in by_type and by_type[name].spec.operators):
                continue
            by_type[name] = task
        return tuple(by_type.values())

    def _key(self, task: Task) -> object:
        """Return what decides whether a failed build is tried again: another library, or a task that states more."""
        return self._view.kernels_version, task.spec.operators

    def _note_problem(self, task: Task, problem: str) -> None:
        self.problems[self._view.type_of(task)] = (self._key(task), problem)
        LOGGER.info("%s", problem)
