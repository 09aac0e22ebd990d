"""The job service in the controller's process: workers meet, time out and return, and users inspect and intervene.

Service millrace.jobs.v1.Jobs, as dataplane/allreduce/jobs/jobs.proto describes it. Decisions are in `rendezvous`; this
module has streams, the clock and the reconciler of the switches' jobs. Over TLS a worker is on the host that its
certificate or token names.

With a storage it first adopts the jobs of the controller before. Two records are kept, what switches are to hold and
who has a seat; `adopt` mends what a controller that was killed between the two has left:

created in the switches, not yet seated     removed from the switches; its workers arrive again
seat withdrawn, not yet out of the switches  removed from the switches, too
joined in the switches, not yet told        removed from the switches; the newcomer joins again
moved, not yet told                         the old place is kept, the new one removed
moved and told, old place not yet ended     the old place is removed
seats of a job that the switches have ended  it has ended, for its workers, too
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from ipaddress import IPv4Address
from typing import Final, Protocol

import grpc

from collectors.values import JobNote
from controller.common.errors import ControllerError, JobError, LostLeaseError
from controller.network.aggregation.cells import cells_for
from controller.network.aggregation.job_reconciler import Listener
from controller.network.aggregation.jobs import Records, RunningJob
from controller.network.aggregation.records import PlaceRecords
from controller.network.aggregation.service.job_state import (
    Action,
    Change,
    Create,
    End,
    InstalledJob,
    Join,
    Move,
    Notify,
    Remove,
)
from controller.network.aggregation.service.messages import JOB, JobRow, check_end, check_removal
from controller.network.aggregation.service.rendezvous import Rendezvous
from controller.network.aggregation.service.rows import Place, row_of
from controller.network.aggregation.service.seats import JobSeats, SeatRecords
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.storage import JobStorage
from controller.network.intents import Worker
from controller.network.tables.aggregation import parent_of, switches_of
from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.allreduce.jobs.codec import DOWNWARD, upward_of
from dataplane.allreduce.jobs.messages import Ended, Hello, Refused
from dataplane.clock import NS_PER_S, Clock
from dataplane.errors import AccessError
from dataplane.rpc.access.caller import CALLER
from dataplane.rpc.access.permissions import Permission, check_host
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.errors import CallError, MessageError
from dataplane.rpc.options import KEEPALIVE_MS
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service
from dataplane.topology.addressing import switch_ipv4
from dataplane.topology.values import LinkKey, Topology

LOGGER = logging.getLogger("millrace.jobs")

MAX_PENDING: Final = 1024
"""Messages that may wait for one worker; beyond that its connection ends, and it gets the current view on return."""

_NEEDS: Final = {
    "Attend": Permission.ATTEND,
    "ListJobs": Permission.READ,
    "EndJob": Permission.OPERATE,
    "RemoveWorker": Permission.OPERATE,
}

_Outbox = asyncio.Queue[Notify | MessageError | None]
"""Messages to a worker, in order; None, or why its stream is refused, ends it."""


class Reconciler(Protocol):
    """Manager of jobs in switches: `JobReconciler`, whose methods return when switches have acknowledged."""

    @property
    def running(self) -> tuple[RunningJob, ...]:
        """The jobs that have not ended."""
        ...

    def listen(self, listener: Listener) -> None:
        """Notify of jobs that fail or should move."""
        ...

    def adopt(self, job: RunningJob) -> None:
        """Continue a job of an earlier controller; raise ControllerError if it does not fit."""
        ...

    def keep(self, records: Records, newest: int | None) -> None:
        """Record each change from now on, and give out numbers after `newest` unless None."""
        ...

    def aggregator(self, number: int, host: str) -> IPv4Address:
        """Return the address that a worker sends to."""
        ...

    def links(self, number: int) -> tuple[LinkKey, ...]:
        """Return the links by which contributions reach a job's root."""
        ...

    async def create(
        self, workers: Sequence[Worker], *, window: int, capacity: int, server: Worker | None = None
    ) -> RunningJob:
        """Create a job."""
        ...

    async def leave(self, number: int, host: str) -> RunningJob:
        """Remove a worker."""
        ...

    async def join(self, number: int, worker: Worker) -> RunningJob:
        """Add a worker."""
        ...

    async def move(self, number: int) -> RunningJob:
        """Move a job."""
        ...

    async def end(self, number: int) -> None:
        """End a job."""
        ...


class JobService:
    """Serves a reconciler's jobs to workers and people; construct it inside a running event loop."""

    def __init__(
        self,
        settings: JobSettings,
        topology: Topology,
        reconciler: Reconciler,
        clock: Clock,
        *,
        change_ns: int,
        tls: TlsSettings | None = None,
        storage: JobStorage | None = None,
    ) -> None:
        """Serve jobs of a reconciler whose changes take at most `change_ns`.

        With a `storage` refuse all calls until its jobs are adopted.
        """
        settings.check()
        self._seats = None if storage is None else SeatRecords(storage)
        self._adopted = asyncio.Event()
        self._settings, self._topology, self._reconciler, self._clock = settings, topology, reconciler, clock
        self._rendezvous = Rendezvous(settings, [host.name for host in topology.hosts], change_ns)
        self._outboxes: dict[str, _Outbox] = {}
        self._changes: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        # A silent worker loses its lease; its connection lasts longer, so that it can receive the reason.
        keepalive_ms = max(KEEPALIVE_MS, 2 * settings.lease_ns // 1_000_000)
        self._server = RpcServer(
            settings.listen,
            [self._service()],
            purpose="cannot serve aggregation jobs",
            error=JobError,
            limits=settings.limits,
            keepalive_ms=keepalive_ms,
            tls=tls,
        )
        self.address = self._server.address
        reconciler.listen(self)
        if storage is None:
            self._adopted.set()
        else:
            # A slow disk costs no worker its lease: heartbeats wait in the connection meanwhile.
            storage.on_wait = lambda waited_ns: self._rendezvous.excuse(waited_ns, self._clock.now_ns())

    def adopt(self) -> None:
        """Take over the jobs in the storage, before any switch is connected; raise ControllerError for an invalid one.

        A job that does not fit the topology any more has ended, for its workers, too.
        """
        assert self._seats is not None, "there is a storage"
        storage, entries = self._seats.storage, self._seats.storage.load()
        records = PlaceRecords(storage)
        places, seats = records.read(entries), self._seats.read(entries)
        adopted, lost = list[tuple[JobSeats, InstalledJob]](), list[tuple[JobSeats, str]]()
        for number, job in sorted(seats.jobs.items()):
            try:
                adopted.append((job, self._adopted_job(number, places.jobs.get(number))))
            except ControllerError as error:
                lost.append((job, str(error)))
                LOGGER.warning("job %s has ended: %s", job.hello.job, error)
        kept = {job.number for job, _ in adopted}
        storage.save({key: None for number in places.jobs.keys() - kept for key in records.keys(number)})
        self._reconciler.keep(records, places.newest)
        generation = seats.generation + 1
        actions = self._rendezvous.adopt(generation, adopted, lost, self._clock.now_ns())
        self._seats.begin(generation, self._rendezvous.jobs, seats.jobs.keys() - kept)
        for job, installed in adopted:
            LOGGER.info(
                "job %s, number %d, epoch %d: adopted; its workers have %g s to return: %s",
                job.hello.job,
                installed.number,
                installed.epoch,
                self._settings.effective_return_ns / NS_PER_S,
                " ".join(sorted(installed.aggregators)),
            )
        self._adopted.set()
        self._do(actions)

    def _adopted_job(self, number: int, job: RunningJob | None) -> InstalledJob:
        if job is None:
            raise ControllerError(f"aggregation job {number}: the controller stopped while it was ending")
        self._reconciler.adopt(job)
        return self._installed_job(job)

    async def run(self) -> None:
        """Serve until cancelled; jobs stay in the switches."""
        await self._server.start()
        try:
            if not self._adopted.is_set():
                await self._server.report_serving(ready=False)
                await self._adopted.wait()
                await self._server.report_serving(ready=True)
            while True:
                await self._wait()
                self._do(self._rendezvous.tick(self._clock.now_ns()))
        finally:
            for task in self._changes:
                task.cancel()
            await asyncio.gather(*self._changes, return_exceptions=True)
            await self._server.stop()

    def failed(self, number: int, reason: str) -> None:
        """Notify the workers of a job that switches cannot continue it."""
        self._do(self._rendezvous.job_failed(number, reason, self._clock.now_ns()))

    def should_move(self, number: int, reason: str) -> None:
        """Move a job once its workers have reached a point where that is possible."""
        self._do(self._rendezvous.should_move(number, reason, self._clock.now_ns()))

    def notes(self) -> dict[int, JobNote]:
        """Return the running jobs as reported to a collector, by number."""
        return {
            job.installed.number: JobNote(job.name, job.installed.epoch, cells_for(job.installed.window))
            for job in self._rendezvous.jobs
            if job.installed is not None
        }

    async def _wait(self) -> None:
        """Wait until the next worker's deadline, or until that deadline has changed."""
        due_ns = self._rendezvous.due_ns()
        wait_s = None if due_ns is None else max(due_ns - self._clock.now_ns(), 0) / 1e9
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._woken.wait()
        self._woken.clear()

    def _do(self, actions: list[Action]) -> None:
        if not actions or not self._is_kept():
            return
        for action in actions:
            if isinstance(action, Notify):
                self._notify(action)
            else:
                task = asyncio.create_task(self._change(action))
                self._changes.add(task)
                task.add_done_callback(self._changes.discard)
        texts = (
            action.message.reason
            for action in actions
            if isinstance(action, Notify) and isinstance(action.message, Ended | Refused)
        )
        for reason in dict.fromkeys(texts):
            LOGGER.info("%s", reason)

    def _is_kept(self) -> bool:
        """Record what workers are about to be told; return False if another controller is active, which then tells."""
        if self._seats is not None:
            try:
                self._seats.keep(self._rendezvous.jobs)
            except LostLeaseError as error:
                LOGGER.warning("%s", error)
                return False
        return True

    def _notify(self, notify: Notify) -> None:
        outbox = self._outboxes.get(notify.token)
        if outbox is None:
            return
        if outbox.qsize() < MAX_PENDING:
            outbox.put_nowait(notify)
        else:
            outbox.put_nowait(None)
            del self._outboxes[notify.token]

    async def _change(self, change: Change) -> None:
        """Change the switches, and note the outcome."""
        result: InstalledJob | str
        taken_back = None
        try:
            result = await self._carry_out(change)
        except ControllerError as error:
            LOGGER.warning("%s", error)
            result = str(error)
            job = self._running(change.number) if isinstance(change, Join) else None
            taken_back = None if job is None else self._installed_job(job)
        self._do(self._rendezvous.change_done(change, result, self._clock.now_ns(), taken_back=taken_back))
        self._woken.set()
        if isinstance(change, Move) and isinstance(result, InstalledJob) and result.number != change.number:
            await self._end_moved(change.number)

    async def _end_moved(self, number: int) -> None:
        """End a job under the number that it had before it moved: its workers know the new one."""
        try:
            await self._reconciler.end(number)
        except ControllerError as error:
            LOGGER.warning("%s", error)

    async def _carry_out(self, change: Change) -> InstalledJob | str:
        reconciler = self._reconciler
        match change:
            case Create():
                job = await reconciler.create(
                    change.workers, window=change.window, capacity=change.capacity, server=change.server
                )
            case Remove():
                job = await self._remove_worker(change.number, change.host)
            case Join():
                job = await reconciler.join(change.number, change.worker)
            case Move():
                job = await reconciler.move(change.number)
            case End():
                await reconciler.end(change.number)
                return ""
        installed = self._installed_job(job)
        hosts = " ".join(sorted(installed.aggregators))
        LOGGER.info("job %d, epoch %d: %s", installed.number, installed.epoch, hosts)
        return installed

    async def _remove_worker(self, number: int, host: str) -> RunningJob:
        """Return a job without a worker, even if a switch has yet to acknowledge it: it will eventually."""
        try:
            return await self._reconciler.leave(number, host)
        except ControllerError as error:
            job = self._running(number)
            if job is None or host in job.members.workers:
                raise
            LOGGER.warning("%s", error)
            return job

    def _installed_job(self, job: RunningJob) -> InstalledJob:
        aggregators = {host: str(self._reconciler.aggregator(job.number, host)) for host in job.members.workers}
        asked, root = job.placed.job, self._topology.switch[job.placed.tree.root]
        return InstalledJob(
            job.number,
            job.members.epoch,
            asked.window,
            asked.capacity,
            aggregators,
            str(switch_ipv4(root.node_id)),
            asked.nonce,
        )

    def _running(self, number: int) -> RunningJob | None:
        return next((job for job in self._reconciler.running if job.number == number), None)

    def _place(self, number: int) -> Place:
        job = self._running(number)
        if job is None:
            return Place()
        tree = job.placed.tree
        parents = {host: parent_of(tree, host) for host in job.members.workers}
        return Place(switches_of(tree), self._reconciler.links(number), parents)

    def _service(self) -> Service:
        return Service(
            pb.DESCRIPTOR.services_by_name["Jobs"],
            {
                "Attend": self._attend,
                "ListJobs": self._serve_list,
                "EndJob": self._serve_end,
                "RemoveWorker": self._serve_remove,
            },
            _NEEDS,
        )

    async def _attend(self, requests: AsyncIterator[pb.WorkerMessage]) -> AsyncIterator[pb.ServiceMessage]:
        """Serve one worker over one connection; of two connections of a worker the newer one is its own."""
        self._check_active()
        first = await anext(requests, None)
        hello = None if first is None else upward_of(first)
        if not isinstance(hello, Hello):
            raise MessageError("the first message of a worker must be Hello")
        try:
            check_host(CALLER.get(), hello.host)
        except AccessError as error:
            raise CallError(grpc.StatusCode.PERMISSION_DENIED, str(error)) from None
        outbox: _Outbox = asyncio.Queue()
        before = self._outboxes.get(hello.token)
        if before is not None:
            before.put_nowait(None)
        self._outboxes[hello.token] = outbox
        listening = asyncio.create_task(self._listen(requests, hello.token, outbox))
        try:
            self._do(self._rendezvous.connect(hello, self._clock.now_ns()))
            self._woken.set()
            while (notify := await outbox.get()) is not None:
                if isinstance(notify, MessageError):
                    raise notify
                yield DOWNWARD.message(notify.message)
                if notify.last:
                    break
        finally:
            listening.cancel()
            # A newer connection of the same worker may have taken over.
            if self._outboxes.get(hello.token) is outbox:
                del self._outboxes[hello.token]
                self._do(self._rendezvous.disconnect(hello.token, self._clock.now_ns()))
                self._woken.set()

    async def _listen(self, requests: AsyncIterator[pb.WorkerMessage], token: str, outbox: _Outbox) -> None:
        """Receive a worker's messages until its connection ends."""
        try:
            async for request in requests:
                message = upward_of(request)
                if not isinstance(message, Hello):
                    self._do(self._rendezvous.receive(token, message, self._clock.now_ns()))
        except MessageError as error:
            LOGGER.warning("connection to a worker closed: %s", error)
            outbox.put_nowait(error)
        finally:
            outbox.put_nowait(None)

    def rows(self) -> list[JobRow]:
        """Return the current jobs, then those that have ended, the newest first."""
        now_ns = self._clock.now_ns()
        jobs = (*self._rendezvous.jobs, *reversed(self._rendezvous.ended))
        return [row_of(job, now_ns, self._place) for job in jobs]

    def _check_active(self) -> None:
        if not self._adopted.is_set():
            raise CallError(grpc.StatusCode.UNAVAILABLE, "this controller stands by")

    async def _serve_list(self, _: pb.ListJobsRequest) -> pb.JobList:
        self._check_active()
        return pb.JobList(jobs=[JOB.message(row) for row in self.rows()])

    async def _serve_end(self, request: pb.EndJobRequest) -> pb.EndJobResponse:
        self._check_active()
        check_end(request)
        actions = self._rendezvous.end(request.job, request.reason, self._clock.now_ns())
        self._take(actions, f"there is no job {request.job!r}")
        return pb.EndJobResponse()

    async def _serve_remove(self, request: pb.RemoveWorkerRequest) -> pb.RemoveWorkerResponse:
        self._check_active()
        check_removal(request)
        actions = self._rendezvous.remove(request.job, request.host, request.reason, self._clock.now_ns())
        self._take(actions, f"there is no worker {request.host!r} in job {request.job!r}")
        return pb.RemoveWorkerResponse()

    def _take(self, actions: list[Action] | None, otherwise: str) -> None:
        if actions is None:
            raise CallError(grpc.StatusCode.NOT_FOUND, otherwise)
        self._do(actions)
        self._woken.set()
