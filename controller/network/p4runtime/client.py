"""finsy's client with its own deadlines: gRPC's clock would continue while this process is not scheduled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import grpc
from finsy import GRPCCredentialsTLS, P4Client, P4ClientError
from finsy.pbutil import PBMessage
from finsy.proto import p4r

from dataplane.event_loop.deadlines import loop_timeout

if TYPE_CHECKING:
    from finsy.proto import p4r_grpc

_INSTALL_S: Final = 60.0
"""Timeout of a switch for preparing a program: ours compiles it, perhaps on a busy machine."""


class SwitchClient(P4Client):
    """A P4Runtime client; a call raises P4ClientError when it fails, TimeoutError without an answer in time."""

    def __init__(self, address: str, credentials: GRPCCredentialsTLS | None, answer_s: float) -> None:
        """Limit each call to `answer_s`, except for programs, which take longer."""
        super().__init__(address, credentials, wait_for_ready=False)
        self._answer_s = answer_s

    async def write(self, request: p4r.WriteRequest, updates: bytes = b"") -> None:
        """Execute updates: the request's, and encoded ones (`session.encoded_updates`)."""
        async with self._calling("Write", request, self._answer_s):
            try:
                await self._send_encoded("Write", request, updates, p4r.WriteResponse.FromString)
            except grpc.RpcError:
                request.MergeFromString(updates)  # finsy's error names the refused ones
                raise

    async def read(self, request: p4r.ReadRequest) -> list[p4r.ReadResponse]:
        """Return a switch's answer to a read."""
        async with self._calling("Read", request, self._answer_s) as stub:
            return [answer async for answer in stub.Read(request)]

    async def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest, program: bytes) -> None:
        """Send a program (`MessageCache.program`); the request has its target and the action."""
        operation = "SetForwardingPipelineConfig"
        async with self._calling(operation, request, max(_INSTALL_S, self._answer_s)):
            answer = p4r.SetForwardingPipelineConfigResponse.FromString
            await self._send_encoded(operation, request, program, answer)

    async def _send_encoded(
        self, operation: str, request: PBMessage, more: bytes, answer: Callable[[bytes], object]
    ) -> None:
        """Send a request with more encoded fields: many switches get the same, which the stub would encode anew."""
        assert self._channel is not None, "call open() first"
        call = self._channel.unary_unary(
            f"/p4.v1.P4Runtime/{operation}", request_serializer=bytes, response_deserializer=answer
        )
        # Encoded messages can be joined: protobuf merges their fields.
        await call(request.SerializeToString() + more)

    async def pipeline(
        self, request: p4r.GetForwardingPipelineConfigRequest
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return a switch's report of its program."""
        async with self._calling("GetForwardingPipelineConfig", request, self._answer_s) as stub:
            return await stub.GetForwardingPipelineConfig(request)

    async def capabilities(self) -> p4r.CapabilitiesResponse:
        """Return a switch's version of P4Runtime."""
        request = p4r.CapabilitiesRequest()
        async with self._calling("Capabilities", request, self._answer_s) as stub:
            return await stub.Capabilities(request)

    @asynccontextmanager
    async def _calling(
        self, operation: str, request: PBMessage, answer_s: float
    ) -> AsyncIterator[p4r_grpc.P4RuntimeAsyncStub]:
        """Sign a request if needed, and yield its sender, with a deadline."""
        if self._complete_request is not None:
            self._complete_request(request)
        self._log_msg(request)
        try:
            async with loop_timeout(answer_s):
                yield cast("p4r_grpc.P4RuntimeAsyncStub", self._stub)
        except grpc.RpcError as error:
            raise P4ClientError(error, operation, msg=request, schema=self._schema) from None
        except TimeoutError:
            raise TimeoutError(f"within {answer_s:g} s") from None
