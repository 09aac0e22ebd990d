"""Probe tasks of types never seen: built from a task's operators, once, and kept for all tasks of the type."""

from __future__ import annotations

from collections.abc import Iterable

from controller.api.resources import Metadata, ProbeTask, Task
from controller.api.resources.operator_graphs import graph_of
from controller.cluster.operators import OperatorError
from controller.schedulers.probe import files
from controller.schedulers.probe.building import BuildSettings, build
from controller.schedulers.probe.dispatch.names import name_of
from controller.schedulers.probe.errors import ProbeError
from controller.schedulers.probe.matching import match
from controller.schedulers.probe.values import ProbeKernel


def probes_for(
    task: Task, task_type: str, library: Iterable[ProbeKernel], settings: BuildSettings
) -> tuple[ProbeTask, ...]:
    """Return the probe tasks of a task's type, as resources; raise ProbeError, in one line, where none can be built.

    Their names follow from the type alone, so that of two schedulers that build them one writes them.
    """
    try:
        graph = graph_of(task_type, task.spec)
    except OperatorError as error:
        raise ProbeError(f"type {task_type} was never seen, and its operators are no graph: {error}") from None
    if graph is None:
        raise ProbeError(
            f"type {task_type} was never seen, and there is nothing to build a probe of: submit it with its operators,"
            " or write a probe task of its type"
        )
    kernels = tuple(library)
    if not kernels:
        raise ProbeError(f"type {task_type} was never seen, and the library of probe kernels is empty")
    seconds = {one.name: one.seconds for one in task.spec.operators if one.seconds is not None}
    whole = seconds if len(seconds) == len(task.spec.operators) else None
    built = build(graph, match(graph, kernels), settings, task_type=task_type, seconds=whole)
    return tuple(
        ProbeTask(metadata=Metadata(name=name_of("of", task_type, number)), spec=files.to_spec(one))
        for number, one in enumerate(built, 1)
    )
