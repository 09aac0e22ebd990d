"""A switch's ports over gRPC: one subscription, alongside the P4Runtime session and at the same address.

A session lives once: from `run` to its first failure. `PortWatcher` opens one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import grpc
import grpc.aio
from finsy.proto import gnmi, gnmi_grpc

from controller.common.errors import SessionError
from controller.network.gnmi.mirror import PortMirror, subscription
from controller.network.gnmi.observer import PortObserver
from dataplane.errors import AccessError, ConfigError, SwitchError
from dataplane.event_loop.deadlines import loop_timeout
from dataplane.event_loop.turns import Turns
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.backoff import Backoff
from dataplane.rpc.call_errors import reason_of
from dataplane.rpc.channels import open_aio_channel
from dataplane.rpc.options import foreign_options
from dataplane.running import until_first_ends
from dataplane.switch.ports.states import HelloSettings

LOGGER: Final = logging.getLogger("millrace.controller")

WATCH: Final = "watch ports"
UNIMPLEMENTED: Final = grpc.StatusCode.UNIMPLEMENTED.name

_UNSERVED_WAIT_S: Final = 60.0
"""Wait before asking a switch without gNMI again: another one may take over its address."""
_CONNECT_S: Final = 1.0
_CONNECTS_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class PortTarget:
    """A switch's gNMI address, and the hellos wanted on its ports."""

    switch: str
    address: str
    hellos: Mapping[int, HelloSettings | None]
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True)
class Patience:
    """Waits of a session: for an answer, between two signs of life, and before hellos are corrected again."""

    timeout_s: float = 10.0
    probe_s: float = 2.0
    correct_s: float = 1.0


class PortSession:
    """One subscription to a switch's ports."""

    def __init__(self, target: PortTarget, observer: PortObserver, patience: Patience, turns: Turns) -> None:
        """Connect in turn with others."""
        self._target, self._observer, self._patience, self._turns = target, observer, patience, turns
        self._mirror = PortMirror()
        self._updated = asyncio.Event()
        self._is_synchronised = False
        self.has_answered = False

    async def run(self) -> None:
        """Report every port to the observer, then each change, until the session fails with SessionError."""
        try:
            async with open_channel(self._target.address, self._target.tls) as channel:
                stub = gnmi_grpc.gNMIStub(channel)
                # A stream that ends as it begins does not always say why: whether gNMI is served shows here.
                async with self._turns.turn():
                    await self._ask(stub)
                await self._work(stub)
        except grpc.aio.AioRpcError as error:
            raise SessionError(self._target.switch, WATCH, reason_of(error), code=error.code().name) from error
        except TimeoutError as error:
            raise self._failure(f"no answer within {self._patience.timeout_s:g} s") from error
        except (
            SwitchError,
            ConfigError,
            AccessError,
            OSError,
            ValueError,
        ) as error:  # invalid messages, or missing TLS files
            raise self._failure(str(error)) from error

    async def _work(self, stub: gnmi_grpc.gNMIAsyncStub) -> None:
        """Run all tasks of a session concurrently; raise the error of the first that ends."""
        await until_first_ends(self._follow(stub), self._probe(stub), self._correct(stub))

    async def _follow(self, stub: gnmi_grpc.gNMIAsyncStub) -> None:
        stream = stub.Subscribe()  # type: ignore[call-arg]  # the stubs insist on an iterator
        await stream.write(subscription())
        async with loop_timeout(self._patience.timeout_s) as deadline:
            while isinstance(message := await stream.read(), gnmi.SubscribeResponse):
                self._take(message)
                if self._is_synchronised:
                    # Only the initial state has a deadline: afterwards silence is normal.
                    deadline.cancel()
        raise self._failure("the switch ended the subscription")

    def _take(self, message: gnmi.SubscribeResponse) -> None:
        news = self._mirror.take(message.update)
        if message.sync_response and not self._is_synchronised:
            self._is_synchronised = self.has_answered = True
            self._observer.reachable(self._target.switch)
            news = self._mirror.states()
            self._warn_of_missing()
        if self._is_synchronised:
            for state in news:
                self._observer.port_changed(self._target.switch, state)
            self._updated.set()

    async def _probe(self, stub: gnmi_grpc.gNMIAsyncStub) -> None:
        """Send a small request regularly: a machine that loses power closes no connection."""
        while True:
            await asyncio.sleep(self._patience.probe_s)
            await self._ask(stub)

    async def _ask(self, stub: gnmi_grpc.gNMIAsyncStub) -> None:
        async with loop_timeout(self._patience.timeout_s):
            await stub.Capabilities(gnmi.CapabilityRequest())

    async def _correct(self, stub: gnmi_grpc.gNMIAsyncStub) -> None:
        """Set the desired hellos, now and whenever another client has changed them."""
        while True:
            await self._updated.wait()
            self._updated.clear()
            request = self._mirror.corrections(self._target.hellos)
            if request is None:
                continue
            try:
                async with loop_timeout(self._patience.timeout_s):
                    await stub.Set(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.UNAVAILABLE:
                    raise
                LOGGER.warning("switch %s: cannot configure hellos: %s", self._target.switch, reason_of(error))
                await asyncio.Event().wait()  # for the rest of this session
            await asyncio.sleep(self._patience.correct_s)

    def _warn_of_missing(self) -> None:
        missing = self._mirror.missing(self._target.hellos)
        if missing:
            ports = ", ".join(map(str, missing))
            LOGGER.warning("switch %s: skipping hellos on ports that do not exist: %s", self._target.switch, ports)

    def _failure(self, cause: str) -> SessionError:
        return SessionError(self._target.switch, WATCH, cause)


class PortWatcher:
    """Keeps a session to a switch's ports while it runs."""

    def __init__(
        self,
        target: PortTarget,
        observer: PortObserver,
        backoff: Backoff,
        *,
        patience: Patience = Patience(),
        turns: Turns | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Connect in turn with other users of the same `turns`."""
        self._turns = Turns(1, _CONNECT_S) if turns is None else turns
        self._target, self._observer, self._backoff = target, observer, backoff
        self._patience, self._sleep = patience, sleep
        self._problem = ""

    async def run(self) -> None:
        """Watch until cancelled; an unreachable switch counts as silent at once, and is tried again."""
        while True:
            session = PortSession(self._target, self._observer, self._patience, self._turns)
            try:
                await session.run()
            except SessionError as error:
                if session.has_answered:
                    self._backoff.reset()
                    self._problem = ""
                self._observer.unreachable(self._target.switch)
                self._note(error)
                wait_s = self._backoff.next_s()
                await self._sleep(_UNSERVED_WAIT_S if error.code == UNIMPLEMENTED else wait_s)

    def _note(self, error: SessionError) -> None:
        """Log a problem, once while it stays the same."""
        if error.code == UNIMPLEMENTED:
            problem = f"switch {error.switch}: it does not serve gNMI: its ports and hellos are not monitored"
        else:
            problem = str(error)
        if problem != self._problem:
            LOGGER.log(logging.INFO if error.code == UNIMPLEMENTED else logging.WARNING, "%s", problem)
        self._problem = problem


def connection_turns() -> Turns:
    """Return turns for the watchers of a fabric: all first calls at once would take longer than their timeout."""
    return Turns(_CONNECTS_AT_ONCE, _CONNECT_S)


def open_channel(address: str, tls: TlsSettings | None) -> grpc.aio.Channel:
    """Return a channel to a switch; raise ConfigError or AccessError for unusable TLS files."""
    return open_aio_channel(address, tls, foreign_options())
