"""Handling of undecodable requests where gRPC decodes messages itself: INVALID_ARGUMENT with our own text.

By default gRPC answers them with UNKNOWN and the text of a Python exception.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from dataplane.rpc.errors import MessageError

_UNDECODABLE: Final = object()
_TEXT: Final = "the request does not decode"


class Decoding(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic only in its stubs
    """Refuses undecodable requests of `methods` ("/package.Service/Method"); a stream raises MessageError."""

    def __init__(self, methods: Collection[str]) -> None:
        self._methods = frozenset(methods)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:  # noqa: ANN401 - a handler of whatever messages
        """Return the method's handler, preceded by the check."""
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method not in self._methods:
            return handler
        decode = handler.request_deserializer

        def attempt(data: bytes) -> Any:  # noqa: ANN401
            try:
                return decode(data)
            except DecodeError:
                return _UNDECODABLE

        return _checked(handler._replace(request_deserializer=attempt))


def _checked(handler: Any) -> Any:  # noqa: ANN401
    """Return a handler that refuses undecodable requests; it has the same kind as `handler`, as gRPC requires."""
    if handler.request_streaming:
        converse = handler.stream_stream
        if not inspect.isasyncgenfunction(converse):  # it writes to its context

            async def write(requests: Any, context: Any) -> None:  # noqa: ANN401
                await converse(_decoded(requests), context)

            return handler._replace(stream_stream=write)
        return handler._replace(
            stream_stream=_generating(lambda requests, context: converse(_decoded(requests), context))
        )
    if handler.response_streaming:
        return handler._replace(unary_stream=_generating(handler.unary_stream))
    answer = handler.unary_unary

    async def answer_checked(request: Any, context: Any) -> Any:  # noqa: ANN401
        await _refuse(request, context)
        return await answer(request, context)

    return handler._replace(unary_unary=answer_checked)


def _generating(stream: Callable[[Any, Any], AsyncGenerator[Any, None]]) -> Any:  # noqa: ANN401
    async def answers(request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        await _refuse(request, context)
        async with aclosing(stream(request, context)) as replies:
            async for answer in replies:
                yield answer

    return answers


async def _refuse(request: Any, context: Any) -> None:  # noqa: ANN401
    if request is _UNDECODABLE:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _TEXT)


async def _decoded(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        if request is _UNDECODABLE:
            raise MessageError(_TEXT)
        yield request
