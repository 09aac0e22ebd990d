"""Server of a machine's blocks: copies between hosts, and requests that run on them.

Callers with the role `node` may read blocks, `service` and `admin` may do everything.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from controller.memory.connections import Caller, client_context
from controller.memory.errors import HostDownError, RefusedError
from controller.memory.frame_server import MAY_ALL, FrameServer
from controller.memory.frames import Frame, Kind
from controller.memory.host.computing import Computer, generated
from controller.memory.host.settings import HostSettings
from controller.memory.host.store import Store
from controller.memory.messages import (
    LISTED,
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
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.rpc.access.values import Principal

_PEER_WITHIN_S: Final = 5.0
_KEPT_PEERS: Final = 16
_ROUNDS: Final = 8
_MAY_READ: Final = (Kind.HELLO, Kind.STATUS, Kind.READ)


class _Peers(Closing):
    """Connections to other hosts, kept for the next copy."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._idle: dict[str, list[Caller]] = {}

    def call(self, address: str, frame: Frame) -> Frame:
        """Return a host's answer, by a connection that nobody else uses; an idle one may have been closed."""
        caller = self._taken(address)
        if caller is not None:
            try:
                return self._called(address, caller, frame)
            except HostDownError:
                pass  # it may have been closed while nobody used it
        return self._called(address, Caller(address, self._context, within_s=_PEER_WITHIN_S), frame)

    def _called(self, address: str, caller: Caller, frame: Frame) -> Frame:
        try:
            return caller.call(frame)
        finally:
            self._put(address, caller)

    def _taken(self, address: str) -> Caller | None:
        with self._lock:
            idle = self._idle.get(address)
            return idle.pop() if idle else None

    def _put(self, address: str, caller: Caller) -> None:
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if caller.is_open and len(self._idle) <= _KEPT_PEERS and len(idle) < _KEPT_PEERS:
                idle.append(caller)
                return
        caller.close()

    def close(self) -> None:
        """Close all."""
        with self._lock:
            for idle in self._idle.values():
                for caller in idle:
                    caller.close()
            self._idle.clear()


class Host(Closing):
    """Serves the blocks of a store from construction until it is closed."""

    def __init__(self, settings: HostSettings, store: Store, computer: Computer | None = None) -> None:
        """Raise ConfigError for an address that cannot be listened on, AccessError for unusable certificates."""
        self._settings, self._store = settings, store
        self._computer = Computer() if computer is None else computer
        self._lock = threading.Lock()
        self._claims: Counter[str] = Counter()
        self._peers = _Peers(None if settings.tls is None else client_context(settings.tls))
        self.server = FrameServer(settings.address, settings.tls, settings.limits, lambda who: _Talk(self, who))

    @property
    def address(self) -> str:
        """The address listened on, with the port that the kernel picked for port 0."""
        return self.server.address

    def close(self) -> None:
        """Stop listening and end all connections."""
        self.server.close()
        self._peers.close()

    def claim(self, pool: str) -> None:
        """Note that a connection claims this host for a pool; raise RefusedError if another pool has it."""
        with self._lock:
            other = next((name for name, count in self._claims.items() if count > 0 and name != pool), None)
            if other is not None:
                raise RefusedError(f"pool {other} uses host {self._settings.name}")
            self._claims[pool] += 1

    def unclaim(self, pool: str) -> None:
        """Note the end of a claim."""
        with self._lock:
            self._claims[pool] -= 1

    def carry_out(self, frame: Frame) -> Frame:
        """Return the answer to a permitted request."""
        call: dict[Kind, Callable[[Frame], Frame]] = {
            Kind.HELLO: self._hello,
            Kind.STATUS: self._hello,
            Kind.READ: self._read,
            Kind.WRITE: self._write,
            Kind.FREE: self._freed,
            Kind.LIST: self._list,
            Kind.COPY: self._copy,
            Kind.RUN: self._run,
            Kind.MEASURE: self._measure,
        }
        return call[frame.kind](frame)

    def _hello(self, frame: Frame) -> Frame:
        description = Description(
            host=self._settings.name,
            block_bytes=self._settings.block_bytes,
            tiers=tuple(self._store.figures),
            cores=self._settings.cores,
            float_ops_per_s=self._computer.float_ops_per_s,
            int_ops_per_s=self._computer.int_ops_per_s,
        )
        return Frame(frame.kind, body=encoded(description))

    def _read(self, frame: Frame) -> Frame:
        content = self._store.tier(frame.tier).get(frame.key, frame.version)
        # The checksum of when it was written goes along: the reader verifies the whole way.
        return Frame(frame.kind, frame.tier, frame.key, content.version, content.data, checksum=content.checksum)

    def _write(self, frame: Frame) -> Frame:
        assert frame.checksum is not None
        self._store.tier(frame.tier).put(frame.key, frame.version, frame.body, frame.checksum)
        return Frame(frame.kind)

    def _freed(self, frame: Frame) -> Frame:
        self._store.tier(frame.tier).free(frame.key, frame.version)
        return Frame(frame.kind)

    def _list(self, frame: Frame) -> Frame:
        blocks, more = self._store.tier(frame.tier).listed(frame.key, LISTED)
        return Frame(frame.kind, body=encoded(Listed(blocks=blocks, more=more)))

    def _copy(self, frame: Frame) -> Frame:
        """Copy a block here and verify it; nothing changes at its source."""
        wanted = decoded(frame.body, Copy)
        begin_ns = time.perf_counter_ns()
        if wanted.source:
            answer = self._peers.call(wanted.source, Frame(Kind.READ, wanted.tier, frame.key, frame.version))
            data, version, checksum = answer.body, answer.version, answer.checksum or 0
        else:
            content = self._store.tier(wanted.tier).get(frame.key, frame.version)
            data, version, checksum = content.data, content.version, content.checksum
        self._store.tier(frame.tier).put(frame.key, version, data, checksum)
        total_ns = time.perf_counter_ns() - begin_ns
        return Frame(frame.kind, body=encoded(Copied(nbytes=len(data), total_ns=total_ns)))

    def _run(self, frame: Frame) -> Frame:
        run = decoded(frame.body, Run)
        if not self._settings.cores:
            raise RefusedError(f"host {self._settings.name} has no cores: it only holds blocks")
        tier, begin_ns = self._store.tier(frame.tier), time.perf_counter_ns()
        for key in run.reads:
            tier.get(key)
        for key, version in run.writes:
            data = generated(key, version, tier.block_bytes)
            tier.put(key, version, data, Frame(Kind.WRITE, body=data).header().checksum)
        data_ns = time.perf_counter_ns() - begin_ns
        compute_ns = self._computer.run(run.float_operations, run.int_operations)
        return Frame(frame.kind, body=encoded(Ran(data_ns=data_ns, compute_ns=compute_ns)))

    def _measure(self, frame: Frame) -> Frame:
        """Measure round trips without a body, and with a block if the other host has one; the least of some."""
        address = decoded(frame.body, Target).address
        trips, best_ns, nbytes = [], 0, 0
        for _ in range(_ROUNDS):
            begin_ns = time.perf_counter_ns()
            self._peers.call(address, Frame(Kind.STATUS))
            trips.append(time.perf_counter_ns() - begin_ns)
        for _ in range(_ROUNDS if frame.version else 0):
            begin_ns = time.perf_counter_ns()
            answer = self._peers.call(address, Frame(Kind.READ, frame.tier, frame.key))
            took_ns, nbytes = time.perf_counter_ns() - begin_ns, len(answer.body)
            best_ns = min(best_ns or took_ns, took_ns)
        rate = 8 * nbytes * NS_PER_S // max(best_ns - min(trips) // 2, 1)
        return Frame(frame.kind, body=encoded(Way(round_trip_ns=min(trips), rate_bps=rate)))


class _Talk:
    """Requests of one connection: what its caller may ask, and the pool for which it claims the host."""

    def __init__(self, host: Host, caller: Principal) -> None:
        self._host, self._caller, self._pool = host, caller, ""

    def answer(self, frame: Frame) -> Frame:
        """Return the answer; raise RefusedError for a request that the caller may not make."""
        is_claim = frame.kind is Kind.HELLO and len(frame.body) > 0
        if self._caller.role not in MAY_ALL and (frame.kind not in _MAY_READ or is_claim):
            raise RefusedError(
                f"{self._caller.name} has the role {self._caller.role.value}, which may only read blocks"
            )
        if is_claim and not self._pool:
            pool = decoded(frame.body, Claim).pool
            self._host.claim(pool)
            self._pool = pool
        return self._host.carry_out(frame)

    def close(self) -> None:
        """End the claim."""
        if self._pool:
            self._host.unclaim(self._pool)
