"""The other end of the job service for people: what jobs there are, and having them end."""

from __future__ import annotations

from typing import Final, TypeVar, cast

import grpc

from controller.aggregation.job_messages import EndQuery, JobList, JobRow, RemoveQuery, pack, unpack
from controller.errors import JobError
from dataplane.allreduce.membership_messages import SERVICE
from dataplane.rpc.addresses import client_options, malformed
from dataplane.rpc.call_errors import reason_of

TIMEOUT_S: Final = 5.0

T = TypeVar("T")


class JobClient:
    """Questions to the job service at an address; each raises JobError in one line."""

    def __init__(self, address: str) -> None:
        problem = malformed(address)
        if problem is not None:
            raise JobError(f"job service at {address!r}: {problem}")
        self._address = address

    def jobs(self) -> tuple[JobRow, ...]:
        """Return the jobs that there are, then those that have ended, the newest first."""
        return self._ask("List", None, JobList).jobs

    def end(self, job: str, reason: str) -> None:
        """Have a job end; its workers are told the reason."""
        self._ask("End", EndQuery(job, reason), type(None))

    def remove(self, job: str, host: str, reason: str) -> None:
        """Have a job go on without a worker, which is told the reason."""
        self._ask("Remove", RemoveQuery(job, host, reason), type(None))

    def _ask(self, method: str, request: object, schema: type[T]) -> T:
        with grpc.insecure_channel(self._address, options=client_options(int(TIMEOUT_S * 1e9))) as channel:
            try:
                answer = channel.unary_unary(f"/{SERVICE}/{method}", None, None)(pack(request), timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                reason = reason_of(cast(grpc.Call, error))
                raise JobError(f"job service at {self._address}: {reason}") from error
        return unpack(answer, schema)
