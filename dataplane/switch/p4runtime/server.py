"""A P4Runtime server in its own thread, so that the switch's own thread needs no asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

import grpc

from dataplane.clock import NS_PER_S
from dataplane.errors import SwitchError
from dataplane.rpc.access import Principal, Role
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.access.tls import TlsFiles, server_credentials
from dataplane.rpc.addresses import exposed, is_plain, is_unix, unavailable
from dataplane.rpc.admission import Admission
from dataplane.rpc.decoding import Decoding
from dataplane.rpc.limits import Limits
from dataplane.rpc.options import server_options
from dataplane.rpc.server import ServedHealth, bind, guards_of
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.service import P4RuntimeService

MAX_MESSAGE_BYTES = 32 << 20
"""The largest request, eight times our largest pipeline: gRPC and protobuf hold each one several times over."""

PENDING_BYTES: Final = 2 * MAX_MESSAGE_BYTES
"""Maximum bytes of requests being read or processed at a time."""

MAX_ANSWER_BYTES: Final = 128 << 20
"""The largest response: a pipeline read from files may be larger than what clients may send."""

GRACE_S = 0.5
"""Time for running calls to finish when the server stops."""

START_S = 30.0
"""Longest start; a slower one fails rather than block forever."""

SHORTEST_WAIT_S = 0.001
"""Shortest wait before the server checks again for due work: a clock may stand still."""

UNMARKED: Final = Principal("controller", Role.ADMIN)
"""Identity of a client whose certificate names no role."""

_UNIX = "unix:"

LIMITS: Final = Limits(
    request_bytes=MAX_MESSAGE_BYTES,
    pending_bytes=PENDING_BYTES,
    answer_bytes=MAX_ANSWER_BYTES,
    calls=256,
    connections=256,
)
"""Combined limits of all clients of a switch, for P4Runtime and gNMI."""


@dataclass(frozen=True, slots=True)
class Keepalive:
    """Detection of clients whose machine or network died silently: it frees their election id."""

    interval_s: float = 5.0
    """A client silent for this long is probed (HTTP/2 PING)."""
    timeout_s: float = 5.0
    """Time for its reply."""


class Beside(Protocol):
    """Another service on the same addresses; everything is called on the server's loop."""

    @property
    def needs(self) -> Mapping[str, Permission]:
        """The permission that each method requires, "/package.Service/Method", if callers are authenticated."""
        ...

    def register(self, server: grpc.aio.Server) -> str:
        """Register with the server, before it starts; return the service's name."""
        ...

    def end_streams(self) -> None:
        """End the streams, which do not end by themselves, because the server stops."""
        ...

    def close(self) -> None:
        """Wait for running calls; take no more."""
        ...


class P4RuntimeServer:
    """Serves one core on TCP addresses (`host:port`, port 0 for any) and UNIX sockets (`unix:PATH`).

    Services `beside` it share addresses and TLS, which applies to TCP only. A certificate without one of our roles may
    do everything, as with simple_switch_grpc. Use it as a context manager, or call `start` and `stop`; each works once.
    """

    def __init__(
        self,
        core: P4RuntimeCore,
        addresses: Sequence[str],
        tls: TlsFiles | None = None,
        *,
        beside: Sequence[Beside] = (),
        keepalive: Keepalive | None = None,
        limits: Limits = LIMITS,
        in_order: Executor | None = None,
    ) -> None:
        """Run long requests by `in_order`; by default in separate threads."""
        self.ports: tuple[int, ...] = ()
        self._core = core
        self._addresses = tuple(addresses)
        self._tls = tls
        self._beside = tuple(beside)
        self._in_order = in_order
        self._limits, self._keepalive = limits, keepalive or Keepalive()
        self._thread = threading.Thread(target=self._run, name="p4runtime", daemon=True)
        self._started = threading.Event()
        self._on_started: Callable[[], object] = self._started.set
        self._failure: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def start(self) -> None:
        """Bind and serve; return when clients can connect. `ports` then holds each address's TCP port.

        Raises ConfigError for bad TLS files and SwitchError for an address that cannot be bound; neither leaves
        anything running.
        """
        self._check()
        self._thread.start()
        if not self._started.wait(START_S):
            raise SwitchError(f"the P4Runtime server did not start within {START_S:.0f} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    async def serve(self, on_started: Callable[[], None]) -> None:
        """Serve on the running loop, in place of `start`, until cancelled; call `on_started` when clients can connect.

        Raises the same errors as `start`.
        """
        self._check()
        self._on_started = on_started
        await self._serve()

    def stop(self) -> None:
        """End every call and stream, and return when the thread is gone; do nothing if it is not running."""
        if self._loop is not None and self._stopping is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def __enter__(self) -> P4RuntimeServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _check(self) -> None:
        """Check credentials and addresses; raise ConfigError, or SwitchError for an address that is not available."""
        self._credentials = None if self._tls is None else server_credentials(self._tls)
        for address in self._addresses:
            problem = unavailable(address) or exposed(address, has_tls=self._tls is not None)
            if problem is not None:
                raise SwitchError(f"cannot listen on {address}: {problem}")

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except SwitchError as error:
            self._failure = error
        except (OSError, RuntimeError) as error:  # no descriptors left, no thread can be started
            self._failure = SwitchError(f"the P4Runtime server cannot run: {error}")
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        service = P4RuntimeService(self._core, self._in_order, first_message_ns=self._limits.first_message_ns)
        services: tuple[Beside, ...] = (service, *self._beside)
        needs = {method: need for service in services for method, need in service.needs.items()}
        server = grpc.aio.server(
            options=server_options(self._limits, _ms(self._keepalive.interval_s), _ms(self._keepalive.timeout_s)),
            maximum_concurrent_rpcs=self._limits.calls,
            interceptors=[
                *guards_of(self._tls, needs, UNMARKED),
                Admission(self._limits.request_bytes, self._limits.pending_bytes),
                Decoding(needs),
            ],
        )
        health = ServedHealth(server, [service.register(server) for service in services])
        timer = asyncio.create_task(self._keep_time(service))
        try:
            self.ports = tuple(self._bind(server, address) for address in self._addresses)
            await health.begin()
            await server.start()
            self._on_started()
            await _first_of(asyncio.create_task(self._stopping.wait()), timer)
        finally:
            timer.cancel()
            await health.end()
            for served in services:
                served.end_streams()
            await server.stop(GRACE_S)
            for served in services:
                served.close()
            _remove_sockets(self._addresses)

    async def _keep_time(self, service: P4RuntimeService) -> None:
        """Run the core's due work, on the switch's clock."""
        loop, due = asyncio.get_running_loop(), asyncio.Event()
        self._core.on_due(lambda: self._call_soon(loop, due.set))
        while True:
            due.clear()
            due_ns = await service.call(lambda: self._core.tick(self._core.now_ns()))
            wait_s = None if due_ns is None else max((due_ns - self._core.now_ns()) / NS_PER_S, SHORTEST_WAIT_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await due.wait()

    @staticmethod
    def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: this server has stopped
            loop.call_soon_threadsafe(call)

    def _bind(self, server: grpc.aio.Server, address: str) -> int:
        try:
            return bind(server, address, None if is_unix(address) or is_plain(address) else self._credentials)
        except RuntimeError as error:
            raise SwitchError(
                f"cannot listen on {address}: already in use, or not an address of this machine"
            ) from error


async def _first_of(stopping: asyncio.Task[Any], timer: asyncio.Task[None]) -> None:
    """Wait until the server must stop; a failing timer raises rather than fail silently."""
    try:
        await asyncio.wait((stopping, timer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if timer.done():
        timer.result()


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 1)


def _remove_sockets(addresses: Sequence[str]) -> None:
    for address in addresses:
        if address.startswith(_UNIX):
            Path(address.removeprefix(_UNIX)).unlink(missing_ok=True)
