"""How a job stands, as the service tells its workers."""

from __future__ import annotations

from functools import cmp_to_key

from controller.aggregation.service.job_state import Attendance, Meeting
from dataplane.allreduce.membership_messages import Admitted, Hold, View
from dataplane.wire.aggregation import age

_BEATS = 4
"""A worker speaks so many times in the time after which it is missed."""


def admitted_of(job: Meeting, worker: Attendance, lease_ns: int, change_ns: int) -> Admitted:
    """Return what a worker is told that is a member from now on; the job stands in the switches.

    It is missed after `lease_ns`; a change of the switches takes `change_ns` at most.
    """
    standing = job.standing
    assert standing is not None
    item, count = worker.enters or (0, 0)
    return Admitted(
        number=standing.number,
        aggregator=standing.aggregators[worker.asked.host],
        window=standing.window,
        capacity=standing.capacity,
        epoch=standing.epoch,
        first_item=item,
        first_count=count,
        members=tuple(sorted(job.members)),
        beat_ns=lease_ns // _BEATS,
        patience_ns=lease_ns + 2 * change_ns,
        root=standing.root,
        newest=worker.newest,
    )


def view_of(job: Meeting, host: str, now_ns: int, change_ns: int) -> View:
    """Return the job as it is now, for the member of a host; it stands in the switches."""
    standing, hold = job.standing, job.hold
    assert standing is not None
    shown = None
    if hold is not None:
        # The last change may begin when the hold is about to be given up; a move is two of them.
        shown = Hold(hold.number, hold.count, max(hold.until_ns - now_ns, 0) + 2 * change_ns)
    members = tuple(sorted(job.members))
    where = standing.number, standing.aggregators[host], standing.root
    leaving = max(job.leavers.values(), key=cmp_to_key(age), default=None)
    return View(*where, standing.epoch, members, shown, job.newest, leaving)
