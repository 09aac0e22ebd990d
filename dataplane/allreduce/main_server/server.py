"""The main server of a job: a member that contributes nothing, but distributes to all workers and takes results.

with MainServer.join("10.9.0.1:9560", job="resnet", host="c1", workers=4) as server:
    server.distribute(weights)
    final = server.take()
"""

from __future__ import annotations

from typing import Any, Final, Self

from numpy.typing import NDArray

from dataplane.allreduce.engine import TransportName
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.membership import MakeEngine, Membership
from dataplane.allreduce.transfers import flattened
from dataplane.closing import Closing
from dataplane.rpc.access.settings import TlsSettings

_MOST_GIVERS: Final = 64
"""Workers that may be lost, one after the other, while they deliver a value."""


class MainServer(Closing):
    """A job's main server, from `join` to `close`; one transfer at a time, from one thread."""

    def __init__(self, membership: Membership) -> None:
        """Use `join`."""
        self._membership = membership

    @classmethod
    def join(
        cls,
        address: str,
        *,
        job: str,
        host: str,
        workers: int,
        port: int = 0,
        deadline_s: float = 60.0,
        local_address: str = "",
        patience_s: float | None = None,
        tls: TlsSettings | None = None,
        make: MakeEngine = JobEngine,
        transport: TransportName = "udp",
    ) -> Self:
        """Meet a job's workers at its service, and return once the switches add up for them.

        `host` is this machine's name in the topology, and runs none of the `workers`. It joins before they have
        started, or, also again, at the UDP `port` of the `server` that they named. `patience_s` bounds the wait for
        a part of a transfer, not that for the workers to reach one. See Membership.join for the rest, and for errors.
        """
        membership = Membership.join(
            address,
            job=job,
            host=host,
            workers=workers,
            deadline_s=deadline_s,
            server=(host, port),
            is_main_server=True,
            local_address=local_address,
            patience_s=patience_s,
            tls=tls,
            make=make,
            transport=transport,
        )
        return cls(membership)

    @property
    def members(self) -> tuple[str, ...]:
        """The hosts of the job's workers."""
        return self._membership.members

    def distribute(self, values: bytes | NDArray[Any]) -> None:
        """Send a value to all workers, which `receive` it; return when all have it.

        Each packet is sent once, and the switches copy it. Waits for workers that are busy. Raises AllReduceError.
        """
        self._membership.engine.distribute(flattened(values))

    def take(self) -> bytes:
        """Return the value that the workers `deliver`; wait for it. Raises AllReduceError."""
        return self._membership.engine.take(_MOST_GIVERS).tobytes()

    def close(self) -> None:
        """Leave the job, which continues without a main server. Idempotent."""
        self._membership.close()
