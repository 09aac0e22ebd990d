"""Status that the manager reports of a pod, from its containers and their records; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources.hardware import Load
from controller.apiserver.resources.pod import ContainerStatus, Phase, Pod, PodStatus
from controller.workloads.nodes.deciding.planning import end_of, is_done, own_containers
from controller.workloads.nodes.deciding.shares import limits_in
from controller.workloads.nodes.deciding.values import NO_RECORD, SHARES_LABEL, Actual, Record, Wanted
from controller.workloads.nodes.runtimes.base import ContainerPhase

_LINE: Final = 1024
_LOAD_STEP: Final = 0.05


def status_of(
    pod: Pod, wanted: Wanted, actual: Sequence[Actual], *, now_ns: int, load: Load | None = None
) -> PodStatus:
    """Return the status to write, `now_ns` by the server's clock; the parts of bindings and other writers stay."""
    own = own_containers(wanted, actual)
    containers = tuple(
        container_status(name, own.get(name), wanted.records.get(name, NO_RECORD), before)
        for name, before in _before(pod, wanted)
    )
    phase = _phase(pod, wanted, own)
    started = pod.status.started_ns
    if phase is Phase.RUNNING and not (started is not None and started >= (pod.status.bound_ns or 0)):
        started = now_ns
    problems = tuple(f"{container.name}: {container.reason}"[:_LINE] for container in containers if container.reason)
    return replace(
        pod.status,
        phase=phase,
        started_ns=started,
        containers=containers,
        load=load if load is not None else pod.status.load,
        device_limits=next(
            (limits_in(container.state.labels.get(SHARES_LABEL, "")) for container in own.values()),
            pod.status.device_limits,
        ),
        reasons=pod.status.reasons if wanted.going is not None else problems,
    )


def container_status(
    name: str, container: Actual | None, record: Record, before: ContainerStatus | None
) -> ContainerStatus:
    """Return the status of a container."""
    if container is None:
        ended = None if before is None else before.exit_code
        return ContainerStatus(
            name=name,
            state="waiting" if record.problem else "starting",
            exit_code=ended,
            restarts=record.attempt,
            reason=record.problem[:_LINE],
        )
    state = container.state
    reason = "" if container.phase is not ContainerPhase.EXITED or container.has_succeeded else end_of(container)
    return ContainerStatus(
        name=name,
        state=container.phase.value,
        runtime_id=container.id[:_LINE],
        image_digest=state.image_digest[:_LINE],
        exit_code=container.exit_code,
        restarts=container.attempt,
        started_ns=state.started_ns,
        reason=reason,
    )


def is_news(status: PodStatus, reported: PodStatus) -> bool:
    """Return whether a status adds anything but the pod's load."""
    return replace(status, load=None) != replace(reported, load=None)


def is_other_load(load: Load, reported: Load | None) -> bool:
    """Return whether a load is worth a write: a change by a twentieth of the limit, or of the free part."""
    if reported is None or (load.busy is None) != (reported.busy is None):
        return True
    if abs((load.busy or 0.0) - (reported.busy or 0.0)) >= _LOAD_STEP:
        return True
    free, before = load.memory_free_bytes, reported.memory_free_bytes
    if free is None or before is None:
        return free is not before
    return abs(free - before) > _LOAD_STEP * max(free, before)


def _before(pod: Pod, wanted: Wanted) -> list[tuple[str, ContainerStatus | None]]:
    reported = {container.name: container for container in pod.status.containers}
    return [(name, reported.get(name)) for name in wanted.containers]


def _phase(pod: Pod, wanted: Wanted, own: Mapping[str, Actual]) -> Phase:
    if wanted.going is not None:
        return Phase.STOPPING
    runs = [container.runs for container in own.values()]
    done = [is_done(wanted, own.get(name), wanted.records.get(name, NO_RECORD)) for name in wanted.containers]
    is_up = [name in own and own[name].runs for name in wanted.containers]
    if any(runs) and all(up or is_finished for up, is_finished in zip(is_up, done, strict=True)):
        return Phase.RUNNING
    if all(done) and pod.status.phase is Phase.RUNNING:
        return Phase.RUNNING  # until its release reports its end
    return Phase.STARTING
