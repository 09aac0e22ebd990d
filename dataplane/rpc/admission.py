"""A byte budget for the requests of all calls in flight, reserved before a request is read.

gRPC reads a request as soon as its call is accepted, whatever else is being read, and holds it two or three times over.
Here a call waits until its largest request fits; HTTP/2 makes its sender wait meanwhile. Once the request has arrived,
only its actual size counts, until the call has ended. Messages of streams are bounded one by one and not counted.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio

WAIT_S: Final = 10.0
"""Maximum wait of a call for room."""
READ_S: Final = 30.0
"""Maximum time for a request to arrive: 32 MiB do at 10 Mbit/s. A sender that stops halfway loses its room."""
_Context = Any
"""gRPC's context, for any message types."""


class Budget:
    """A number of bytes; belongs to one event loop."""

    def __init__(self, size: int) -> None:
        self.size, self._free = size, size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int, wait_s: float) -> bool:
        """Reserve bytes, in the order of calls; return False if they do not become free in time."""
        if not self._waiting and size <= self._free:
            self._free -= size
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = size, turn
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException as error:
            if entry in self._waiting:
                self._waiting.remove(entry)
            elif turn.done() and not turn.cancelled():
                self.give_back(size)
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def give_back(self, size: int) -> None:
        """Release bytes."""
        self._free += size
        while self._waiting and self._waiting[0][0] <= self._free:
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self._free -= wanted
                turn.set_result(None)


@dataclass(slots=True)
class _Sized:
    """A request and its size in bytes."""

    size: int
    request: Any

    def take(self) -> Any:  # noqa: ANN401 - whatever the method takes
        """Return the request and drop the reference to it."""
        request, self.request = self.request, None
        return request


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic only in its stubs
    """Makes calls with one request wait until `largest` bytes of a budget of `size` are free; runs after the guard.

    A call that waits longer than `wait_s` is refused with RESOURCE_EXHAUSTED, its request unread; a request that takes
    longer than `read_s` to arrive with DEADLINE_EXCEEDED.
    """

    def __init__(self, largest: int, size: int, *, wait_s: float = WAIT_S, read_s: float = READ_S) -> None:
        self._largest, self._budget = largest, Budget(max(size, largest))
        self._wait_s, self._read_s = wait_s, read_s

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler of whatever messages
        """Return the method's handler, which reads once there is room.

        It takes a stream of requests: gRPC would read a unary request before calling us.
        """
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        decode = handler.request_deserializer

        def sized(data: bytes) -> _Sized:
            return _Sized(len(data), data if decode is None else decode(data))

        handler = handler._replace(request_streaming=True, request_deserializer=sized)
        if handler.response_streaming:
            return handler._replace(unary_stream=None, stream_stream=self._streaming(handler.unary_stream))
        single = handler.unary_unary

        async def answer(requests: AsyncIterator[_Sized], context: _Context) -> Any:  # noqa: ANN401
            with _forgetting():
                async with self._admitted(requests, context) as given:
                    return await single(given.take(), context)

        return handler._replace(unary_unary=None, stream_unary=answer)

    def _streaming(self, stream: Any) -> Any:  # noqa: ANN401
        """Return it in either style: answers are generated, or written by functions to their context."""
        if not inspect.isasyncgenfunction(stream):

            async def write(requests: AsyncIterator[_Sized], context: _Context) -> None:
                with _forgetting():
                    async with self._admitted(requests, context) as given:
                        await stream(given.take(), context)

            return write

        async def answers(requests: AsyncIterator[_Sized], context: _Context) -> AsyncIterator[Any]:
            with _forgetting():
                async with (
                    self._admitted(requests, context) as given,
                    aclosing(stream(given.take(), context)) as replies,
                ):
                    async for answer in replies:
                        yield answer

        return answers

    @asynccontextmanager
    async def _admitted(self, requests: AsyncIterator[_Sized], context: _Context) -> AsyncIterator[_Sized]:
        """Wait for room, read a request, and hold its actual size until the block ends."""
        budget = self._budget
        if not await budget.take(self._largest, self._wait_s):
            full = f"requests of {budget.size} bytes are in progress, the most at a time"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, full)
        held = self._largest
        try:
            # The request iterator holds the last one until it is closed, if only by the garbage collector.
            async with aclosing(aiter(requests)) as given:  # type: ignore[type-var]
                request = await self._first(given, context)
            if request is None:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a request is missing")
                raise AssertionError  # an abort raises
            held = request.size
            budget.give_back(self._largest - held)
            yield request
        finally:
            budget.give_back(held)

    async def _first(self, requests: AsyncIterator[_Sized], context: _Context) -> _Sized | None:
        try:
            async with asyncio.timeout(self._read_s):
                return await anext(requests, None)
        except TimeoutError:
            late = f"the request did not arrive within {self._read_s:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, late)
            raise


class _forgetting:  # noqa: N801 - a context manager, but contextlib's would put the frames back
    """Removes the frames, which hold the request, from the error that aborts a call and from its causes.

    gRPC keeps the error in a reference cycle with the call, until the garbage collector runs.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        seen: BaseException | None = error if isinstance(error, grpc.aio.AbortError) else None
        while seen is not None:
            seen.__traceback__ = None
            seen = seen.__cause__ or seen.__context__
