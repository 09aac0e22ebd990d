"""Actions that follow from an event: changes of the switches, and the state of jobs as workers are sent it."""

from __future__ import annotations

from functools import cmp_to_key

from controller.network.aggregation.service.job_state import Action, Change, JobState, Notify, WorkerState
from controller.network.aggregation.service.main_servers import with_server
from dataplane.allreduce.jobs.messages import Admitted, Barrier, Downward, Ended, Refused, View, Waiting
from dataplane.wire.aggregation import age

_HEARTBEATS = 4
"""Number of messages that a worker sends within its timeout."""


class Outbox:
    """Collects actions in their order; a worker is missed after `lease_ns`, a change takes `change_ns` at most."""

    def __init__(self, lease_ns: int, change_ns: int) -> None:
        self._lease_ns, self._change_ns = lease_ns, change_ns
        self._actions: list[Action] = []

    def take(self) -> list[Action]:
        """Return the actions collected since the last call."""
        actions, self._actions = self._actions, []
        return actions

    def change(self, job: JobState, change: Change) -> None:
        """Begin a change of the switches, the only one of its job."""
        job.pending_change = change
        self._actions.append(change)

    def tell(self, token: str, message: Downward) -> None:
        """Send a worker a message."""
        self._actions.append(Notify(token, message, last=isinstance(message, Refused | Ended)))

    def tell_waiting(self, job: JobState, worker: WorkerState) -> None:
        """Tell a worker that is not admitted yet who is there."""
        self.tell(worker.hello.token, Waiting(tuple(sorted(job.members)), job.hello.workers))

    def admit(self, job: JobState, worker: WorkerState) -> None:
        """Admit a worker to a job that is in the switches."""
        self.tell(worker.hello.token, _admitted_of(job, worker, self._lease_ns, self._change_ns))

    def show(self, job: JobState, worker: WorkerState, now_ns: int) -> None:
        """Send a member, or the main server, the current job."""
        self.tell(worker.hello.token, _view_of(job, worker.hello.host, now_ns, self._change_ns))

    def show_all(self, job: JobState, now_ns: int) -> None:
        """Send the current job to all members, and to the main server."""
        for worker in with_server(job):
            self.show(job, worker, now_ns)


def _admitted_of(job: JobState, worker: WorkerState, lease_ns: int, change_ns: int) -> Admitted:
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


def _view_of(job: JobState, host: str, now_ns: int, change_ns: int) -> View:
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
    return View(
        *where,
        installed.epoch,
        members,
        shown,
        job.newcomers,
        leaving,
        installed.nonce,
        count,
        server,
        job.newcomers_at,
    )
