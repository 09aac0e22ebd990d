"""A gRPC service as described by its .proto, and the methods that answer: messages in, messages out.

A method takes the request (for a stream: an asynchronous iterator of them) and returns the answer, or is an
asynchronous generator of answers, closed as soon as the client has gone. It refuses by raising CallError. Answers may
be bytes that were made in another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dataplane.clock import NS_PER_S
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.errors import CallError
from dataplane.rpc.limits import Limits
from dataplane.rpc.messages import parse_request, serialize

T = TypeVar("T")
_Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
_Handler: TypeAlias = "grpc.RpcMethodHandler[bytes, bytes]"
STOPPING: Final = "the service stops"


@dataclass(frozen=True, slots=True)
class Service:
    """A service of a .proto, `NAME_pb2.DESCRIPTOR.services_by_name[...]`.

    methods: the implementation of each call. needs: the permission that each one requires if callers are known.
    """

    descriptor: ServiceDescriptor
    methods: Mapping[str, Callable[..., Any]]
    needs: Mapping[str, Permission]

    def __post_init__(self) -> None:
        declared = {method.name for method in self.descriptor.methods}
        if declared != self.methods.keys():
            raise ValueError(f"{self.descriptor.full_name} declares {sorted(declared)}, not {sorted(self.methods)}")
        if declared != self.needs.keys():
            raise ValueError(
                f"{self.descriptor.full_name}: {sorted(declared ^ self.needs.keys())}: missing or unknown permissions"
            )


@dataclass(slots=True)
class Streams:
    """Long-running calls in progress, bounded by `limits`; a server that stops ends them."""

    limits: Limits
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """End each one with UNAVAILABLE, and from now on any new one."""
        self._stopping.set()
        for task in self._tasks:
            task.cancel()

    def fitting(self, answer: Message | bytes) -> bytes:
        """Serialize an answer; raise CallError if it is too large: gRPC would log a stack trace."""
        data = serialize(answer)
        if len(data) > self.limits.answer_bytes:
            most = f"an answer of {len(data)} bytes is larger than the {self.limits.answer_bytes} that are sent"
            raise CallError(grpc.StatusCode.RESOURCE_EXHAUSTED, most)
        return data

    async def follow(
        self, answers: AsyncGenerator[Message | bytes, None], context: _Context
    ) -> AsyncGenerator[bytes, None]:
        """Yield the serialized answers until they end or the server stops."""
        task = asyncio.current_task()
        assert task is not None
        if self._stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        if len(self._tasks) >= self.limits.streams:
            most = f"{self.limits.streams} streams are open, the most at a time"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, most)
        self._tasks.add(task)
        try:
            async with aclosing(answers):
                async for answer in answers:
                    yield self.fitting(answer)
        except CallError as error:
            await context.abort(error.code, str(error))
        except asyncio.CancelledError:
            if not self._stopping.is_set():
                raise
            task.uncancel()
            await context.abort(grpc.StatusCode.UNAVAILABLE, STOPPING)
        finally:
            self._tasks.discard(task)


def handlers_of(service: Service, streams: Streams) -> grpc.GenericRpcHandler[Any, Any]:
    """Return the handlers with which a gRPC server serves this."""
    descriptor = service.descriptor
    handlers = {method.name: _handler(method, service.methods[method.name], streams) for method in descriptor.methods}
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


def _handler(method: MethodDescriptor, call: Callable[..., Any], streams: Streams) -> _Handler:
    schema = GetMessageClass(method.input_type)
    match method.client_streaming, method.server_streaming:
        case False, False:
            return grpc.unary_unary_rpc_method_handler(_answering(schema, call, streams))
        case False, True:
            return grpc.unary_stream_rpc_method_handler(_streaming(schema, call, streams))
        case True, True:
            return grpc.stream_stream_rpc_method_handler(_conversing(schema, call, streams))
    raise ValueError(f"{method.full_name}: a stream with one answer is not served")


def _answering(schema: type[Message], call: Callable[..., Any], streams: Streams) -> Callable[..., Any]:
    async def answer(data: bytes, context: _Context) -> bytes:
        try:
            return streams.fitting(await call(parse_request(schema, data)))
        except CallError as error:
            await context.abort(error.code, str(error))
            raise

    return answer


def _streaming(schema: type[Message], call: Callable[..., Any], streams: Streams) -> Callable[..., Any]:
    async def stream(data: bytes, context: _Context) -> AsyncIterator[bytes]:
        try:
            request = parse_request(schema, data)
        except CallError as error:
            await context.abort(error.code, str(error))
        async with aclosing(streams.follow(call(request), context)) as answers:
            async for answer in answers:
                yield answer

    return stream


def _conversing(schema: type[Message], call: Callable[..., Any], streams: Streams) -> Callable[..., Any]:
    async def converse(requests: AsyncIterator[bytes], context: _Context) -> AsyncIterator[bytes]:
        begun = in_time(requests, streams.limits.first_message_ns)
        parsed = (parse_request(schema, data) async for data in begun)
        async with aclosing(streams.follow(call(parsed), context)) as answers:
            async for answer in answers:
                yield answer

    return converse


async def in_time(requests: AsyncIterator[T], first_ns: int) -> AsyncGenerator[T, None]:
    """Yield a client's messages; raise CallError (DEADLINE_EXCEEDED) if the first does not come within `first_ns`."""
    try:
        async with asyncio.timeout(first_ns / NS_PER_S):
            first = await anext(requests, None)
    except TimeoutError:
        late = f"no message within {first_ns / NS_PER_S:g} s of the stream's beginning"
        raise CallError(grpc.StatusCode.DEADLINE_EXCEEDED, late) from None
    if first is None:
        return
    yield first
    async for request in requests:
        yield request
