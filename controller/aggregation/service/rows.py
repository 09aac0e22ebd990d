"""Jobs of the service as people see them."""

from __future__ import annotations

from collections.abc import Callable

from controller.aggregation.service.job_state import Attendance, Meeting, Phase
from controller.aggregation.service.messages import JobRow, MemberRow


def row_of(job: Meeting, now_ns: int, switches_of: Callable[[int], tuple[str, ...]]) -> JobRow:
    """Return a job's row; `switches_of` tells where a number is added up."""
    standing, is_over = job.standing, job.phase is Phase.ENDED
    working = "waiting" if standing is None else "working"
    members = [_member(worker, working, now_ns) for worker in job.staying.values()]
    members += [_member(job.members[host], "leaving", now_ns) for host in job.leavers]
    members += [_member(worker, "joining", now_ns) for worker in job.joiners.values()]
    return JobRow(
        job.name,
        None if standing is None else standing.number,
        job.phase.value,
        job.size if standing is not None else job.asked.workers,
        () if is_over else tuple(sorted(members, key=lambda member: member.host)),
        None if standing is None else standing.epoch,
        job.window,
        job.capacity,
        () if standing is None or is_over else switches_of(standing.number),
        job.reason,
        now_ns - job.ended_ns if is_over else None,
    )


def _member(worker: Attendance, state: str, now_ns: int) -> MemberRow:
    is_lost = worker.lost_ns is not None
    return MemberRow(worker.asked.host, "disconnected" if is_lost else state, now_ns - worker.heard_ns)
