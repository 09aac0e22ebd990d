"""The P4Runtime core behind gRPC: hands each call over, and turns its error into a gRPC status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc

from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.errors import CallError
from dataplane.rpc.limits import Limits
from dataplane.rpc.service import in_time
from dataplane.switch.p4runtime.core import P4RuntimeCore, StreamSession
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError
from dataplane.switch.p4runtime.outbox import Outbox

_STATUS = {code.value[0]: code for code in grpc.StatusCode}

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]


INLINE_UPDATES = 16
"""Largest batch that is applied at once: starting a thread would take longer."""


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """Serves p4.v1.P4Runtime on one event loop, which no request holds up for long.

    Work that takes the core's lock runs in order of arrival, at once if it is short and nothing waits, else in one
    thread; pipelines are prepared in another.
    """

    def __init__(
        self,
        core: P4RuntimeCore,
        in_order: Executor | None = None,
        *,
        first_message_ns: int = Limits().first_message_ns,
    ) -> None:
        """Run long requests one after the other, and pipeline preparation, by `in_order`; by default in threads.

        A stream whose client says nothing for `first_message_ns` ends.
        """
        self._core, self._first_message_ns = core, first_message_ns
        self._outboxes: set[Outbox] = set()
        self._in_order = in_order or ThreadPoolExecutor(1, "p4runtime-requests")
        self._configs = in_order or ThreadPoolExecutor(1, "p4runtime-config")
        self._waiting = 0

    needs: ClassVar[Mapping[str, Permission]] = {
        "/p4.v1.P4Runtime/Write": Permission.CHANGE,
        "/p4.v1.P4Runtime/Read": Permission.READ,
        "/p4.v1.P4Runtime/SetForwardingPipelineConfig": Permission.OPERATE,
        "/p4.v1.P4Runtime/GetForwardingPipelineConfig": Permission.READ,
        "/p4.v1.P4Runtime/StreamChannel": Permission.CHANGE,
        "/p4.v1.P4Runtime/Capabilities": Permission.READ,
    }

    def register(self, server: grpc.aio.Server) -> str:
        """Register with a server; return the service's name."""
        p4r_grpc.add_P4RuntimeServicer_to_server(self, server)
        return "p4.v1.P4Runtime"

    async def Write(self, request: p4r.WriteRequest, context: Context) -> p4r.WriteResponse:  # noqa: N802
        """Apply a batch."""
        long = len(request.updates) > INLINE_UPDATES
        return await _answer(self.call(lambda: self._core.write(request), long=long), context)

    async def Read(  # noqa: N802
        self, request: p4r.ReadRequest, context: Context
    ) -> AsyncIterator[p4r.ReadResponse]:
        """Stream the selected entities."""
        try:
            for response in await self.call(lambda: self._core.read(request)):
                yield response
        except P4RuntimeError as error:
            await _abort(context, error)

    async def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline."""
        # It will take the core's lock at some point: until then nothing that takes it runs on the loop's thread.
        return await _answer(self._run(self._configs, lambda: self._core.set_pipeline(request)), context)

    async def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline's configuration."""
        return await _answer(self.call(lambda: self._core.get_pipeline(request)), context)

    async def call(self, call: Callable[[], Answer], *, long: bool = False) -> Answer:
        """Return the result of a call to the core, after the calls that came before it."""
        if not long and not self._waiting:
            return call()
        return await self._run(self._in_order, call)

    async def _run(self, executor: Executor, call: Callable[[], Answer]) -> Answer:
        """Run a call to its end in a thread, even if the client gives up."""
        self._waiting += 1
        running = asyncio.get_running_loop().run_in_executor(executor, call)
        running.add_done_callback(self._note_done)
        return await asyncio.shield(running)

    def _note_done(self, done: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        if not done.cancelled():
            done.exception()  # the client received it, unless it gave up

    def close(self) -> None:
        """Wait for running calls; take no more."""
        self._in_order.shutdown()
        self._configs.shutdown()

    async def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: Context
    ) -> p4r.CapabilitiesResponse:
        """Return the API version."""
        try:
            return self._core.capabilities(request)
        except P4RuntimeError as error:
            await _abort(context, error)
            raise

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Context
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Carry arbitration and packets until the client ends the stream or breaks a rule."""
        outbox = Outbox(asyncio.get_running_loop(), self._core.count_slow)
        self._outboxes.add(outbox)
        session = self._core.open_stream(outbox.send)
        reader = asyncio.create_task(self._consume(requests, session, outbox))
        try:
            while (message := await outbox.get()) is not None:
                yield message
            if outbox.failure is None:
                await reader
            else:
                await _abort(context, outbox.failure)
        except P4RuntimeError as error:
            await _abort(context, error)
        finally:
            session.close()
            outbox.close()
            self._outboxes.discard(outbox)
            reader.cancel()
            with suppress(asyncio.CancelledError, P4RuntimeError):
                await reader

    async def _consume(
        self, requests: AsyncIterator[p4r.StreamMessageRequest], session: StreamSession, outbox: Outbox
    ) -> None:
        """Hand a client's messages over; an error ends the stream after what is queued."""
        try:
            async for request in in_time(requests, self._first_message_ns):
                if request.WhichOneof("update") == "arbitration":  # after the writes that came before it
                    await self.call(partial(session.handle, request))
                else:
                    session.handle(request)
        except CallError as error:
            outbox.fail(P4RuntimeError(Code[error.code.name], str(error)))
        finally:
            outbox.close()

    def end_streams(self) -> None:
        """End every stream with UNAVAILABLE, so that a stopping server need not cancel them."""
        for outbox in self._outboxes:
            outbox.fail(P4RuntimeError(Code.UNAVAILABLE, "the switch is stopping"))


async def _answer(call: Awaitable[Answer], context: Context) -> Answer:
    try:
        return await call
    except P4RuntimeError as error:
        await _abort(context, error)
        raise


async def _abort(context: Context, error: P4RuntimeError) -> None:
    """End the call with the error's status; the details of a batch go into the trailer."""
    trailer = (("grpc-status-details-bin", error.to_status().SerializeToString()),) if error.details else ()
    await context.abort(_STATUS[error.code], error.message, trailer)
