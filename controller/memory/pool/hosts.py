"""Hosts of a pool as it calls them: connections that are kept, and the calls by name."""

from __future__ import annotations

import ssl
import threading

from controller.memory.connections import Caller
from controller.memory.errors import RefusedError
from controller.memory.frames import Frame, Kind
from controller.memory.messages import (
    MOST_TIERS,
    Claim,
    Copied,
    Copy,
    Description,
    Listed,
    Ran,
    Run,
    Target,
    Way,
    decoded,
    encoded,
)
from dataplane.closing import Closing


class RemoteHost(Closing):
    """A host by its address; safe for concurrent use, each call has a connection to itself."""

    def __init__(self, name: str, address: str, context: ssl.SSLContext | None, pool: str, within_s: float) -> None:
        self.name, self.address = name, address
        self._context, self._pool, self._within_s = context, pool, within_s
        self._lock = threading.Lock()
        self._idle: list[Caller] = []
        self._generation = 0

    def open(self) -> Description:
        """Claim the host for the pool and return its description; raise HostDownError or RefusedError."""
        self.close()
        caller, description = self._claimed()
        self._put(caller, self._generation)
        if description.host != self.name:
            raise RefusedError(f"{self.name}: at {self.address} is host {description.host}")
        if not 0 < len(description.tiers) <= MOST_TIERS:
            raise RefusedError(f"{self.name}: it has {len(description.tiers)} tiers")
        return description

    def status(self) -> Description:
        """Return the host's current description."""
        return decoded(self._call(Frame(Kind.STATUS)).body, Description)

    def read(self, tier: int, key: int, version: int = 0) -> Frame:
        """Return a block, verified."""
        return self._call(Frame(Kind.READ, tier, key, version))

    def write(self, tier: int, key: int, version: int, data: bytes) -> None:
        """Store a block."""
        self._call(Frame(Kind.WRITE, tier, key, version, data))

    def free(self, tier: int, key: int, version: int) -> None:
        """Remove a block of this version or an older one."""
        self._call(Frame(Kind.FREE, tier, key, version))

    def copy(self, tier: int, key: int, version: int, source: str, source_tier: int) -> Copied:
        """Have the host copy a block from another one (its address; '' is itself) and verify it."""
        body = encoded(Copy(source=source, tier=source_tier))
        return decoded(self._call(Frame(Kind.COPY, tier, key, version, body)).body, Copied)

    def run(self, tier: int, run: Run) -> Ran:
        """Run a request's work on blocks of a tier."""
        return decoded(self._call(Frame(Kind.RUN, tier, body=encoded(run))).body, Ran)

    def measure(self, address: str, block: tuple[int, int] | None) -> Way:
        """Have the host measure the way to another one, with a block of it (tier, key) if one is known."""
        tier, key = block or (0, 0)
        frame = Frame(Kind.MEASURE, tier, key, int(block is not None), encoded(Target(address=address)))
        return decoded(self._call(frame).body, Way)

    def held(self, tier: int) -> dict[int, int]:
        """Return the versions of all blocks of a tier by key."""
        held: dict[int, int] = {}
        start, more = 0, True
        while more:
            listed = decoded(self._call(Frame(Kind.LIST, tier, start)).body, Listed)
            held.update(listed.blocks)
            more = listed.more and bool(listed.blocks)
            start = listed.blocks[-1][0] + 1 if listed.blocks else start
        return held

    def close(self) -> None:
        """Close all connections that nobody uses; those in use close after their call."""
        with self._lock:
            idle, self._idle = self._idle, []
            self._generation += 1
        for caller in idle:
            caller.close()

    def _claimed(self) -> tuple[Caller, Description]:
        """Return a new connection, which claims the host for the pool, and the host's description."""
        caller = Caller(self.address, self._context, within_s=self._within_s, name=self.name)
        try:
            answer = caller.call(Frame(Kind.HELLO, body=encoded(Claim(pool=self._pool))))
            return caller, decoded(answer.body, Description)
        except BaseException:
            caller.close()
            raise

    def _call(self, frame: Frame) -> Frame:
        with self._lock:
            caller, generation = self._idle.pop() if self._idle else None, self._generation
        if caller is None:
            caller, _ = self._claimed()
        try:
            answer = caller.call(frame)
        finally:
            self._put(caller, generation)
        return answer

    def _put(self, caller: Caller, generation: int) -> None:
        with self._lock:
            if caller.is_open and generation == self._generation:
                self._idle.append(caller)
                return
        caller.close()
