"""Client of one of our gRPC services: messages in, messages out, across restarts of the service."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from dataplane.errors import MillraceError
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.backoff import Backoff
from dataplane.rpc.call_errors import PERMANENT, reason_of
from dataplane.rpc.channels import RenewingChannel, uncallable
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import parse
from dataplane.rpc.options import client_options
from dataplane.rpc.values import Mirror

V = TypeVar("V")
M = TypeVar("M", bound=Message)


class ServiceSettings(Protocol):
    """Address of a service, and retry intervals."""

    @property
    def address(self) -> str:
        """The gRPC address: unix:PATH, HOST:PORT or plain:HOST:PORT."""
        ...

    @property
    def tls(self) -> TlsSettings | None:
        """TLS settings for HOST:PORT; None: those of the environment."""
        ...

    @property
    def first_wait_ns(self) -> int:
        """Wait before the first retry; each further wait is twice as long."""
        ...

    @property
    def longest_wait_ns(self) -> int:
        """Maximum wait between retries."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """A service: its gRPC name, its name in messages, and the error type of its clients."""

    service: str
    name: str
    error: Callable[[str], MillraceError]


class ServiceClient:
    """Calls a service and reconnects when it returns; use it as an async context manager.

    `on_wait` is called before a wait with the target and the reason, once as long as they stay the same; `on_answer` on
    the first answer of any stream, and on the first after a wait. Every failure is the peer's error, in one line.
    """

    def __init__(
        self,
        peer: Peer,
        settings: ServiceSettings,
        *,
        timeout_s: float | None = None,
        rng: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_wait: Callable[[str], None] | None = None,
        on_answer: Callable[[str], None] | None = None,
    ) -> None:
        """Fail a call that gets no answer for `timeout_s`; None: wait without limit."""
        self._peer, self._place, self._timeout_s = peer, settings, timeout_s
        self._rng = rng or random.Random()
        self._sleep, self._on_wait, self._on_answer = sleep, on_wait, on_answer
        self._channel: RenewingChannel | None = None
        self._is_away = True

    async def __aenter__(self) -> Self:
        service = self._place
        problem = uncallable(service.address, service.tls)
        if problem is not None:
            raise self._peer.error(f"{self._peer.name} at {service.address!r}: {problem}")
        self._channel = RenewingChannel(service.address, service.tls, client_options(service.longest_wait_ns))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    @property
    def address(self) -> str:
        """The service's gRPC address, as in the settings."""
        return self._place.address

    async def _ask(self, method: str, request: Message, schema: type[M]) -> M:
        """Return the answer to a request."""
        return self._parsed(schema, await self._call(method, request.SerializeToString()))

    async def _ask_first(self, method: str, request: Message, schema: type[M]) -> M:
        """Return the first answer of a stream, and end it."""
        return self._parsed(schema, await self._first(method, request.SerializeToString()))

    async def _follow(self, method: str, request: Message, schema: type[M]) -> AsyncGenerator[M, None]:
        """Yield a method's answers over as many calls as it takes; closing the generator ends the call."""
        async with aclosing(self._stream(method, request.SerializeToString())) as messages:
            async for data in messages:
                yield self._parsed(schema, data)

    def _request(self, mirror: Mirror[V, M], value: V) -> M:
        """Convert a value to a request; raise the peer's error if it cannot be encoded."""
        try:
            return mirror.message(value)
        except MessageError as error:
            raise self._failed(f"this cannot be asked: {error}") from error

    def _parsed(self, schema: type[M], data: bytes) -> M:
        with self._decoding():
            return parse(schema, data)

    @contextmanager
    def _decoding(self) -> Iterator[None]:
        """Turn an invalid answer into the peer's error."""
        try:
            yield
        except MessageError as error:
            raise self._failed(f"this version does not understand its answer: {error}") from error

    async def _call(self, method: str, request: bytes) -> bytes:
        """Return the answer to a request."""
        call = (await self._open()).unary_unary(f"/{self._peer.service}/{method}", None, None)
        try:
            message: bytes = await call(request, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._failed(reason_of(error)) from error
        return message

    async def _first(self, method: str, request: bytes) -> bytes:
        """Return the first message of a stream, and end it."""
        stream = (await self._open()).unary_stream(f"/{self._peer.service}/{method}", None, None)(
            request, timeout=self._timeout_s
        )
        try:
            async for message in stream:
                stream.cancel()
                return bytes(message)
        except grpc.aio.AioRpcError as error:
            raise self._failed(reason_of(error)) from error
        raise self._failed("it ended the stream without an answer")

    async def _stream(self, method: str, request: bytes) -> AsyncGenerator[bytes, None]:
        """Yield a method's messages over as many calls as it takes; closing the generator ends the call."""
        backoff = Backoff(self._place.first_wait_ns, self._place.longest_wait_ns, self._rng)
        last_reason: str | None = None
        where = f"the {self._peer.name} at {self._place.address}"
        while True:
            reason = f"the {self._peer.name} ended the stream"
            call = (await self._open()).unary_stream(f"/{self._peer.service}/{method}", None, None)(request)
            try:
                async for message in call:
                    backoff.reset()
                    last_reason = None
                    if self._is_away and self._on_answer is not None:
                        self._on_answer(f"{where} answers")
                    self._is_away = False
                    yield message
            except grpc.aio.AioRpcError as error:
                reason = reason_of(error)
                if error.code() in PERMANENT:
                    raise self._failed(reason) from error
            finally:
                # For the service, a call that is no longer read continues until it is cancelled.
                call.cancel()
            seconds, self._is_away = backoff.next_s(), True
            if self._on_wait is not None and reason != last_reason:
                last_reason = reason
                self._on_wait(f"waiting {seconds:.1f} s for {where}: {reason}")
            await self._sleep(seconds)

    def _failed(self, reason: str) -> MillraceError:
        return self._peer.error(f"{self._peer.name} at {self._place.address}: {reason}")

    async def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            raise self._peer.error("the client is used outside its `async with`")
        return await self._channel.current()


class PairClient(ServiceClient):
    """Client of a service that may run in a pair: `_pair` has a client of each one, and is empty otherwise."""

    _pair: Sequence[ServiceClient] = ()

    async def __aenter__(self) -> Self:
        if not self._pair:
            return await super().__aenter__()
        for client in self._pair:
            await client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        for client in self._pair:
            await client.__aexit__(kind, error, traceback)
