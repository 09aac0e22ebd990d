"""Pods of jobs: built from an order, and their status as a job's state; pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.base import MAX_NAME
from controller.apiserver.resources.pod import Container, Phase, PodSpec, Restart
from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase
from controller.workloads.centres.engines.containers.settings import ContainersSettings, ContainerUnit
from controller.workloads.centres.engines.containers.units import times

_BOOT: Final = Path(__file__).with_name("boot.py")
_PLACE: Final = "/tmp"  # noqa: S108 - in a container of its own
_PACKING_S: Final = 5.0
"""Time for packing a job's results, after its own grace."""
_PART: Final = 16
"""Length of the token's part in a pod's name."""
CENTRE: Final = "job-centre"
"""Label for listing a centre's pods, for people too. Users write labels: it proves nothing."""

_PHASES: Final = {
    Phase.RUNNING: JobPhase.RUNNING,
    Phase.STOPPING: JobPhase.RUNNING,
    Phase.SUCCEEDED: JobPhase.SUCCEEDED,
    Phase.FAILED: JobPhase.FAILED,
    Phase.LOST: JobPhase.LOST,
}
"""All others wait."""


def pod_name(mark: JobMark, token: str) -> str:
    """Return the name of a job's pod: the beginning of the job's, and a part of its token.

    Nobody can take the name first, or foresee that a pod of that name will appear.
    """
    return f"{mark.job_name[: MAX_NAME - _PART - 1].rstrip('-.')}-{token[:_PART]}"


def pod_of(
    order: JobOrder, unit: ContainerUnit, settings: ContainersSettings, token: str, packed: dict[str, str] | None
) -> Pod:
    """Return the pod of a job; `packed` is its folder, None for a user's image that runs as it is."""
    mark, name = order.mark, pod_name(order.mark, token)
    if packed is None:
        container = Container(name="job", image=order.image, command=order.argv, environment=dict(order.environment))
        grace_s = order.grace_s
    else:
        program = (str(settings.python), "-I", "-S", "-c", _BOOT.read_text(encoding="utf-8"))
        command = (*program, f"{_PLACE}/{name}", str(settings.results_bytes), str(settings.hold_s))
        container = Container(
            name="job", image=settings.image, bundle=settings.bundle, command=command, environment=packed
        )
        grace_s = order.grace_s + _PACKING_S
    spec = PodSpec(
        containers=(container,),
        request=times(unit.request, order.units),
        node_labels=settings.node_labels | unit.node_labels,
        restart=Restart.NEVER,
        stop_grace_s=grace_s,
        profile=settings.profile,
    )
    labels = {CENTRE: mark.centre, "job-task": mark.task, "job-unit": order.unit, "job-units": str(order.units)}
    return Pod(metadata=Metadata(name=name, labels=labels), spec=spec)


def phase_of(pod: Pod) -> JobPhase:
    """Return a job's phase from its pod."""
    return _PHASES.get(pod.status.phase, JobPhase.QUEUED)


def is_on_a_node(pod: Pod) -> bool:
    """Return whether a pod's containers run, so that it has a log."""
    return pod.status.phase in (Phase.RUNNING, Phase.STOPPING)


def exit_code_of(pod: Pod) -> int | None:
    """Return the exit code of a job's container, None if unknown."""
    return next((container.exit_code for container in pod.status.containers), None)


def why_of(pod: Pod) -> str:
    """Return why a pod waits or how it has ended, in one line."""
    reasons = [*pod.status.reasons, *(container.reason for container in pod.status.containers)]
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))[:1000]
