"""The state of a job as the service sends it to workers."""

from __future__ import annotations

from functools import cmp_to_key

from controller.network.aggregation.service.job_state import JobState, WorkerState
from dataplane.allreduce.jobs.messages import Admitted, Barrier, View
from dataplane.wire.aggregation import age

_HEARTBEATS = 4
"""Number of messages that a worker sends within its timeout."""


def admitted_of(job: JobState, worker: WorkerState, lease_ns: int, change_ns: int) -> Admitted:
    """Return the message that admits a worker; the job is in the switches.

    It is missed after `lease_ns`; a change of the switches takes `change_ns` at most.
    """
    installed = job.installed
    assert installed is not None
    item, count = worker.start or (0, 0)
    return Admitted(
        number=installed.number,
        aggregator=installed.aggregators.get(worker.hello.host, installed.root),
        window=installed.window,
        capacity=installed.capacity,
        epoch=installed.epoch,
        first_item=item,
        first_count=count,
        members=tuple(sorted(job.members)),
        heartbeat_ns=lease_ns // _HEARTBEATS,
        patience_ns=lease_ns + 2 * change_ns,
        root=installed.root,
        newcomers=worker.newcomers,
        nonce=installed.nonce,
        contributors=len(installed.aggregators),
        main_server=None if job.main_server is None else job.main_server.hello.host,
    )


def view_of(job: JobState, host: str, now_ns: int, change_ns: int) -> View:
    """Return the job, which is in the switches, as the member or the main server on a host sees it now."""
    installed, barrier = job.installed, job.barrier
    assert installed is not None
    shown = None
    if barrier is not None and host in installed.aggregators:
        # The last change may begin when the barrier is about to be given up; a move is two of them.
        shown = Barrier(barrier.number, barrier.count, max(barrier.deadline_ns - now_ns, 0) + 2 * change_ns)
    members = tuple(sorted(job.members))
    where = installed.number, installed.aggregators.get(host, installed.root), installed.root
    # Items' numbers wrap around, so compare them by age.
    leaving = max(job.leaving.values(), key=cmp_to_key(age), default=None)
    count = len(installed.aggregators)
    server = None if job.main_server is None else job.main_server.hello.host
    return View(*where, installed.epoch, members, shown, job.newcomers, leaving, installed.nonce, count, server)
