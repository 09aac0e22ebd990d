"""Jobs of the service as people see them."""

from __future__ import annotations

from collections.abc import Callable

from controller.network.aggregation.service.job_state import JobState, Phase, WorkerState
from controller.network.aggregation.service.messages import JobRow, MemberRow


def row_of(job: JobState, now_ns: int, switches_of: Callable[[int], tuple[str, ...]]) -> JobRow:
    """Return a job's row; `switches_of` returns the switches of a job's number."""
    installed, is_over = job.installed, job.phase is Phase.ENDED
    working = "waiting" if installed is None else "working"
    members = [_member(worker, working, now_ns) for worker in job.remaining.values()]
    members += [_member(job.members[host], "leaving", now_ns) for host in job.leaving]
    members += [_member(worker, "joining", now_ns) for worker in job.joiners.values()]
    return JobRow(
        job.name,
        None if installed is None else installed.number,
        job.phase.value,
        job.size if installed is not None else job.hello.workers,
        () if is_over else tuple(sorted(members, key=lambda member: member.host)),
        None if installed is None else installed.epoch,
        job.window,
        job.capacity,
        () if installed is None or is_over else switches_of(installed.number),
        job.reason,
        now_ns - job.ended_ns if is_over else None,
    )


def _member(worker: WorkerState, state: str, now_ns: int) -> MemberRow:
    is_lost = worker.disconnected_ns is not None
    return MemberRow(worker.hello.host, "disconnected" if is_lost else state, now_ns - worker.heard_ns)
