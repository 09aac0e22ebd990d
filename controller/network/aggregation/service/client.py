"""The job service's client for users: lists jobs and ends them."""

from __future__ import annotations

from typing import Final

import grpc
import grpc.aio
import msgspec

from controller.common.errors import JobError
from controller.network.aggregation.service.messages import JOB, JobRow
from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.allreduce.jobs.messages import ADDRESS, SERVICE
from dataplane.config import Strict
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.client import PairClient, Peer

TIMEOUT_S: Final = 5.0
_NEXT: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
"""Codes after which the other controller of a pair is asked."""


class JobClientSettings(Strict, frozen=True):
    """Address of the job service."""

    address: str = ADDRESS
    """Its gRPC address: unix:PATH, HOST:PORT or plain:HOST:PORT; of a pair both, separated by a comma."""
    tls: TlsSettings | None = None
    """Certificates for HOST:PORT; null: those that the environment names."""
    first_wait_ns: int = 100_000_000
    longest_wait_ns: int = 5_000_000_000
    """Waits for a connection."""


class JobClient(PairClient):
    """Asks a job service; use it as an async context manager. Whatever fails is a JobError in one line."""

    def __init__(self, settings: JobClientSettings) -> None:
        super().__init__(Peer(SERVICE, "job service", JobError), settings, timeout_s=TIMEOUT_S)
        addresses = [address.strip() for address in settings.address.split(",")]
        self._pair: list[JobClient] = []
        if len(addresses) > 1:
            self._pair = [JobClient(msgspec.structs.replace(settings, address=address)) for address in addresses]

    async def _call(self, method: str, request: bytes) -> bytes:
        """Return the answer; of a pair that of the active one."""
        if not self._pair:
            return await super()._call(method, request)
        problems = list[JobError]()
        for client in tuple(self._pair):
            try:
                return await client._call(method, request)  # noqa: SLF001 - its own
            except JobError as error:
                cause = error.__cause__
                if not isinstance(cause, grpc.aio.AioRpcError) or cause.code() not in _NEXT:
                    raise
                problems.append(error)
                self._pair.append(self._pair.pop(0))  # ask the other one first from now on
        raise problems[0]

    async def jobs(self) -> tuple[JobRow, ...]:
        """Return the current jobs, then those that have ended, the newest first."""
        with self._decoding():
            return tuple(map(JOB.value, (await self._ask("ListJobs", pb.ListJobsRequest(), pb.JobList)).jobs))

    async def end(self, job: str, reason: str) -> None:
        """End a job; its workers get the reason."""
        await self._ask("EndJob", pb.EndJobRequest(job=job, reason=reason), pb.EndJobResponse)

    async def remove(self, job: str, host: str, reason: str) -> None:
        """Remove a worker from a job, which continues without it; the worker gets the reason."""
        request = pb.RemoveWorkerRequest(job=job, host=host, reason=reason)
        await self._ask("RemoveWorker", request, pb.RemoveWorkerResponse)
