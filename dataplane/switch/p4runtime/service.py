"""The P4Runtime core behind gRPC: each call is handed over, and its error turned into a gRPC status."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc

from dataplane.switch.p4runtime.core import P4RuntimeCore, StreamSession
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError
from dataplane.switch.p4runtime.outbox import Outbox

_STATUS = {code.value[0]: code for code in grpc.StatusCode}

Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[Any, Any]


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """Serves p4.v1.P4Runtime on one event loop."""

    def __init__(self, core: P4RuntimeCore) -> None:
        self._core = core
        self._outboxes: set[Outbox] = set()

    async def Write(self, request: p4r.WriteRequest, context: Context) -> p4r.WriteResponse:  # noqa: N802
        """Apply a batch."""
        return await _answer(lambda: self._core.write(request), context)

    async def Read(  # noqa: N802
        self, request: p4r.ReadRequest, context: Context
    ) -> AsyncIterator[p4r.ReadResponse]:
        """Stream what the request selects."""
        try:
            for response in self._core.read(request):
                yield response
        except P4RuntimeError as error:
            await _abort(context, error)

    async def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline."""
        return await _answer(lambda: self._core.set_pipeline(request), context)

    async def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: Context
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline's configuration."""
        return await _answer(lambda: self._core.get_pipeline(request), context)

    async def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: Context
    ) -> p4r.CapabilitiesResponse:
        """Return the API version."""
        return await _answer(lambda: self._core.capabilities(request), context)

    async def StreamChannel(  # noqa: N802
        self, requests: AsyncIterator[p4r.StreamMessageRequest], context: Context
    ) -> AsyncIterator[p4r.StreamMessageResponse]:
        """Carry arbitration and packets until the client ends the stream or breaks a rule."""
        outbox = Outbox(asyncio.get_running_loop(), partial(self._core.count_drop, "packet_in_slow_client"))
        self._outboxes.add(outbox)
        session = self._core.open_stream(outbox.send)
        reader = asyncio.create_task(_consume(requests, session, outbox))
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

    def end_streams(self) -> None:
        """End every stream with UNAVAILABLE, so that a server that stops need not cancel them."""
        for outbox in self._outboxes:
            outbox.fail(P4RuntimeError(Code.UNAVAILABLE, "the switch stops"))


async def _consume(requests: AsyncIterator[p4r.StreamMessageRequest], session: StreamSession, outbox: Outbox) -> None:
    """Hand a client's messages over; whatever ends them ends the stream after what is queued."""
    try:
        async for request in requests:
            session.handle(request)
    finally:
        outbox.close()


async def _answer(call: Callable[[], Answer], context: Context) -> Answer:
    try:
        return call()
    except P4RuntimeError as error:
        await _abort(context, error)
        raise


async def _abort(context: Context, error: P4RuntimeError) -> None:
    """End the call with the error's status; the details of a batch go into the trailer."""
    trailer = (("grpc-status-details-bin", error.to_status().SerializeToString()),) if error.details else ()
    await context.abort(_STATUS[error.code], error.message, trailer)
