"""The job service on a UNIX socket, with the reference aggregator behind one UDP socket as the switches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from msgspec import structs

from controller.common.errors import ControllerError
from controller.network.aggregation.job_reconciler import Listener
from controller.network.aggregation.jobs import Jobs, Records, RunningJob
from controller.network.aggregation.service.client import JobClient, JobClientSettings
from controller.network.aggregation.service.messages import JobRow
from controller.network.aggregation.service.server import JobService
from controller.network.aggregation.service.settings import JobSettings
from controller.network.aggregation.storage import FileStorage, JobStorage
from controller.network.base_paths import next_hops
from controller.network.intents import Worker
from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.main_server.server import MainServer
from dataplane.allreduce.membership import Membership
from dataplane.allreduce.reference.aggregator import Job
from dataplane.clock import MonotonicClock
from dataplane.closing import Closing
from dataplane.database import IN_MEMORY
from dataplane.rpc.access.settings import TlsSettings
from dataplane.running import run_until
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.states import nominal
from tests.dataplane.allreduce.serving import MAIN_SERVER, Server

MS = 1_000_000
TOPOLOGY = leaf_spine(1, 1, 6)
WINDOW = 16
SETTINGS = JobSettings(lease_ns=20_000 * MS, reconnect_ns=100 * MS, hold_ns=30_000 * MS, window=WINDOW)
BOUND_S = 40.0


class _ServerEngine(JobEngine):
    """A main server's engine, whose switch is the reference aggregator wherever its job is."""

    def relocate(self, epoch: int, contributors: int, aggregator: str, job: int, nonce: int) -> None:
        super().relocate(epoch, contributors, "127.0.0.1", job, nonce)


class PlainReconciler:
    """Keeps jobs in the reference aggregator; at most `places` of them."""

    def __init__(self, server: Server, places: int = 9) -> None:
        self._server, self._places = server, places
        self._jobs = Jobs(TOPOLOGY, next_hops(TOPOLOGY))
        self._state = nominal(TOPOLOGY)
        self.listeners: list[Listener] = []

    @property
    def running(self) -> tuple[RunningJob, ...]:
        return self._jobs.running

    def listen(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def adopt(self, job: RunningJob) -> None:
        self._jobs.adopt(job)
        self._written(job)

    def keep(self, records: Records, newest: int | None) -> None:
        self._jobs.records = records
        if newest is not None:
            self._jobs.given_out(newest)

    def aggregator(self, number: int, host: str) -> IPv4Address:
        return IPv4Address("127.0.0.1")

    def links(self, number: int) -> tuple[LinkKey, ...]:
        return self._jobs.links(number)

    async def create(
        self, workers: Sequence[Worker], *, window: int, capacity: int, server: Worker | None = None
    ) -> RunningJob:
        if len(self.running) >= self._places:
            raise ControllerError("switch s1 has no cells left")
        if server is not None:
            self._introduce({("127.0.0.1", server.udp_port): MAIN_SERVER})
        return self._written(self._jobs.create(workers, self._state, window=window, capacity=capacity, server=server))

    async def leave(self, number: int, host: str) -> RunningJob:
        return self._written(self._jobs.leave(number, host))

    async def join(self, number: int, worker: Worker) -> RunningJob:
        return self._written(self._jobs.join(number, worker))

    async def move(self, number: int) -> RunningJob:
        job = self._jobs.job(number)
        asked = job.placed.job
        return await self.create(asked.workers, window=WINDOW, capacity=asked.capacity, server=asked.server)

    async def end(self, number: int) -> None:
        self._jobs.end(number)
        del self._server.switch.jobs[number]

    def _written(self, job: RunningJob) -> RunningJob:
        hosts = [node.name for node in TOPOLOGY.hosts]
        self._introduce({("127.0.0.1", worker.udp_port): hosts.index(worker.host) for worker in job.placed.job.workers})
        mask = sum(1 << hosts.index(host) for host in job.members.workers)
        self._server.switch.jobs[job.number] = Job(
            epoch=job.members.epoch, children=mask, cells=2 * WINDOW, nonce=job.placed.job.nonce
        )
        return job

    def _introduce(self, children: dict[tuple[str, int], int]) -> None:
        """Register the children with the aggregator, which reads them in its own thread."""
        self._server.children = {**self._server.children, **children}


class RunningService:
    """A running service, and workers in threads."""

    def __init__(
        self,
        address: str,
        server: Server,
        places: int,
        settings: JobSettings,
        tls: TlsSettings | None,
        storage: Callable[[], JobStorage] | None = None,
    ) -> None:
        """With a `storage` stand by until `adopt`."""
        self._storage = storage
        self.address, self._tls = address, tls
        self.server, self._settings = server, structs.replace(settings, listen=self.address)
        self._places = places
        self.reconciler = PlainReconciler(server, places)
        self._pool = ThreadPoolExecutor(8)
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._made: list[Closing] = []

    def start(self) -> None:
        self._ready.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="jobs")
        self._thread.start()
        assert self._ready.wait(BOUND_S)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # A new process knows what the storage says, and nothing else.
        self.reconciler = PlainReconciler(self.server, self._places)
        storage = FileStorage(self._settings.database or IN_MEMORY) if self._storage is None else self._storage()
        try:
            self.service = service = JobService(
                self._settings,
                TOPOLOGY,
                self.reconciler,
                MonotonicClock(),
                change_ns=1000 * MS,
                tls=self._tls,
                storage=storage,
            )
            if self._storage is None:
                service.adopt()
            self.address = service.address
            self._ready.set()
            await run_until(service.run(), self._stop)
        finally:
            storage.close()

    def adopt(self) -> None:
        """Become the active one."""
        assert self._loop is not None
        done = Future[None]()

        def adopt() -> None:
            self.service.adopt()
            done.set_result(None)

        self._loop.call_soon_threadsafe(adopt)
        done.result(BOUND_S)

    def jobs(self, address: str = "") -> list[JobRow]:
        """Return the jobs as people see them."""

        async def listed() -> list[JobRow]:
            async with JobClient(JobClientSettings(address=address or self.address)) as client:
                return list(await client.jobs())

        return asyncio.run(listed())

    def stop(self) -> None:
        if self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(BOUND_S)
            self._thread = None

    def close(self) -> None:
        for member in self._made:
            member.close()
        self.stop()
        self._pool.shutdown()

    def join(
        self, host: str, workers: int, *, job: str = "job", deadline_s: float = 30, address: str = "", **more: Any
    ) -> Future[Membership]:
        """Let a worker join."""

        def come() -> Membership:
            where = address or self.address
            member = Membership.join(
                where, job=job, host=host, workers=workers, deadline_s=deadline_s, make=self._reducer, **more
            )
            self._made.append(member)
            return member

        return self._pool.submit(come)

    def serve(self, host: str, workers: int, *, job: str = "job", deadline_s: float = 30, port: int = 0) -> MainServer:
        """Join as a job's main server."""
        server = MainServer.join(
            self.address,
            job=job,
            host=host,
            workers=workers,
            deadline_s=deadline_s,
            port=port,
            make=lambda settings: _ServerEngine(self.here(settings)),
        )
        self._made.append(server)
        return server

    def together(self, *hosts: str, **more: Any) -> list[Membership]:
        """Let all workers of a job join."""
        return [future.result(BOUND_S) for future in [self.join(host, len(hosts), **more) for host in hosts]]

    def _reducer(self, settings: EngineSettings) -> AllReducer:
        return AllReducer(self.here(settings))

    def here(self, settings: EngineSettings) -> EngineSettings:
        """Return settings with the reference aggregator instead of a switch."""
        return replace(settings, aggregator="127.0.0.1", port=self.server.port, longest_timeout_s=0.02)


@contextmanager
def run_service(
    folder: Path,
    *,
    address: str | None = None,
    places: int = 9,
    settings: JobSettings = SETTINGS,
    make_server: Callable[[int, int], Server] = Server,
    tls: TlsSettings | None = None,
    storage: Callable[[], JobStorage] | None = None,
) -> Iterator[RunningService]:
    """Run the service until the block ends."""
    with make_server(1, WINDOW) as server:
        service = RunningService(address or f"unix:{folder}/jobs", server, places, settings, tls, storage)
        service.start()
        try:
            yield service
        finally:
            service.close()


def cut(member: Membership) -> None:
    """Break a worker's connection."""
    member._connection._call.cancel()


def vanish(member: Membership) -> None:
    """Let a worker vanish like a killed one: its connection ends, and it sends nothing more."""
    member._is_closing = True
    member.reducer.close()
    member._connection.close()
