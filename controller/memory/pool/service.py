"""A pool's service for the programs of its user: requests, blocks and status, by frames over a UNIX socket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import msgspec

from controller.memory.connections import Caller
from controller.memory.errors import MemoryPoolError, RefusedError
from controller.memory.frames import Frame, Kind
from controller.memory.messages import Description, Message, Run, decoded, encoded
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.values import Request
from dataplane.closing import Closing

_WITHIN_S = 120.0


class HostStatus(Message, frozen=True):
    """A host of a pool, and how it is reached from the hosts with cores."""

    description: Description
    is_up: bool
    delay_ns: Mapping[str, int]
    rate_bps: Mapping[str, int]


class PoolStatus(Message, frozen=True):
    """A pool: its hosts, blocks and requests."""

    name: str
    hosts: tuple[HostStatus, ...]
    blocks: int
    cached: int
    dirty: int
    lost: int
    counts: Mapping[str, int]
    experiences: Mapping[str, int] = {}
    """Results that the network has learned from, by what became of them."""
    version: int = 0
    """Version of the network's weights."""


class Answered(Message, frozen=True):
    """Result of a request."""

    host: str
    wait_ns: int
    latency_ns: int
    response_ns: int
    evicted_bytes: int
    eviction_ns: int
    moved_bytes: int
    remote_bytes: int
    error: str = ""


class PoolTalk:
    """Requests of one connection to a pool."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool

    def answer(self, frame: Frame) -> Frame:
        """Return the answer; raise MemoryPoolError on failure."""
        match frame.kind:
            case Kind.STATUS:
                return Frame(frame.kind, body=encoded(status_of(self._pool)))
            case Kind.READ:
                return Frame(frame.kind, key=frame.key, body=self._pool.read(frame.key))
            case Kind.WRITE:
                if len(frame.body) != self._pool.block_bytes:
                    raise RefusedError(f"a block of {len(frame.body)} bytes, not {self._pool.block_bytes}")
                self._pool.write(frame.key, bytes(frame.body))
                return Frame(frame.kind)
            case Kind.RUN:
                run = decoded(frame.body, Run)
                request = Request(
                    run.reads, tuple(key for key, _ in run.writes), run.float_operations, run.int_operations
                )
                return Frame(frame.kind, body=encoded(Answered(**asdict(self._pool.run(request)))))
            case _:
                raise RefusedError(f"a pool does not take {frame.kind.name}")

    def close(self) -> None:
        """Do nothing: nothing is kept for a connection."""


def status_of(pool: MemoryPool) -> PoolStatus:
    """Return a pool's status, with the tiers' figures as of now."""
    pool.refresh()
    with pool.mover.lock:
        blocks = list(pool.catalogue.blocks.values())
        hosts = tuple(
            HostStatus(
                description=description,
                is_up=pool.catalogue.up[number],
                delay_ns={_name(pool, to): way.delay_ns for (to, of), way in pool.mover.ways.items() if of == number},
                rate_bps={_name(pool, to): way.rate_bps for (to, of), way in pool.mover.ways.items() if of == number},
            )
            for number, description in enumerate(pool.descriptions)
        )
        standing = pool.decider.standing
        return PoolStatus(
            name=pool.settings.name,
            hosts=hosts,
            blocks=sum(block.version > 0 for block in blocks),
            cached=sum(block.cached is not None for block in blocks),
            dirty=sum(block.is_dirty for block in blocks),
            lost=len(pool.mover.lost),
            counts=dict(pool.counts),
            experiences={} if standing is None else dict(standing.experiences),
            version=0 if standing is None else standing.version,
        )


def _name(pool: MemoryPool, host: int) -> str:
    return pool.catalogue.hosts[host].name


class PoolClient(Closing):
    """A program's connection to the pool of its user."""

    def __init__(self, address: str) -> None:
        """Raise HostDownError if no pool listens there."""
        self._caller = Caller(address, None, within_s=_WITHIN_S)

    def run(self, request: Request) -> Answered:
        """Run a request, whose written blocks get generated content; raise MemoryPoolError on failure."""
        if request.data:
            raise MemoryPoolError("write blocks with content one by one")
        run = Run(
            reads=request.reads,
            writes=tuple((key, 0) for key in request.writes),
            float_operations=request.float_operations,
            int_operations=request.int_operations,
        )
        return decoded(self._caller.call(Frame(Kind.RUN, body=msgspec.json.encode(run))).body, Answered)

    def read(self, key: int) -> bytes:
        """Return a block's content; raise NoBlockError if it was never written."""
        return bytes(self._caller.call(Frame(Kind.READ, key=key)).body)

    def write(self, key: int, data: bytes) -> None:
        """Write a whole block; when this returns, its home has it."""
        self._caller.call(Frame(Kind.WRITE, key=key, body=data))

    @property
    def status(self) -> PoolStatus:
        """The pool's status."""
        return decoded(self._caller.call(Frame(Kind.STATUS)).body, PoolStatus)

    def close(self) -> None:
        """Close the connection."""
        self._caller.close()
