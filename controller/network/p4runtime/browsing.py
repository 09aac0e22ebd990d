"""A switch's tables, counters and registers, whatever program it runs: for users, alongside its controller."""

from __future__ import annotations

from typing import Any

import grpc.aio
import msgspec
from finsy import P4ClientError, P4Schema
from finsy.grpcutil import GRPCStatusCode
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from controller.common.errors import SessionError
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from dataplane.event_loop.deadlines import loop_timeout
from dataplane.rpc.access.settings import TlsSettings

BROWSER_ID = 1
"""Election id of read-only clients: every controller has a higher one."""


class _Program(msgspec.Struct, frozen=True):
    """Source program named in a bmv2 JSON; the rest is ignored."""

    program: str | None = None


class SwitchBrowser(GrpcSession):
    """A session with a switch of unknown program, which it queries.

    Reading disturbs no other client. To write, it must become the primary: if there is another controller, that is
    refused at once, unless the election id is at least as high as that one's, in which case it takes over.
    """

    def __init__(
        self, address: str, device_id: int | None, *, tls: TlsSettings | None = None, election_id: int = BROWSER_ID
    ) -> None:
        """Without a device id, take the one that the switch tells; 1 if it tells none."""
        target = Target(address, address, 1 if device_id is None else device_id)
        super().__init__(target, P4Schema(), tls=tls, election_id=election_id)
        self._asks_device = device_id is None

    @property
    def schema(self) -> P4Schema:
        """The program that the switch ran at the last query."""
        return self._schema

    async def open(self, *, writes: bool = False) -> None:
        """Connect, as the primary if it `writes`, and query the program; raise SessionError."""
        if self._asks_device:
            await self.connect_to_read()
            await self.ask_device()
        if self._asks_device and writes:
            await self._client.close()
        if writes or not self._asks_device:
            await (self.connect() if writes else self.connect_to_read())
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._target.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        with self._failures("read"):
            p4info = (await self._client.pipeline(ask)).config.p4info
        if not p4info.ByteSize():
            raise SessionError(self.switch, "read", "it has no program")
        version = self._schema.p4runtime_version
        self._schema = P4Schema(p4info)
        self._schema.set_p4runtime_version(version)

    async def source(self) -> str | None:
        """Return the P4 file that the switch's program was compiled from; None if the program does not name it.

        The bmv2 JSON has it under `program`; P4Info has a name only if the program's author gave it one.
        """
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._target.device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.DEVICE_CONFIG_AND_COOKIE,
        )
        with self._failures("read"):
            program = (await self._client.pipeline(ask)).config.p4_device_config
        try:
            return msgspec.json.decode(program, type=_Program).program
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None  # not a bmv2 program: each target has its own form

    async def entities(self, *wanted: Any) -> list[Any]:  # noqa: ANN401 - finsy's entities have no common type
        """Return the selected entities in finsy's form, as many as the switch has of each."""
        request = p4r.ReadRequest(
            device_id=self._target.device_id, entities=[self._encoded(entity) for entity in wanted]
        )
        answers = await self._answers(request)
        return [decode_entity(message, self._schema) for answer in answers for message in answer.entities]

    async def primary(self) -> int | None:
        """Return the election id of the switch's primary, None if there is none; the query elects none."""
        update = p4r.MasterArbitrationUpdate(device_id=self._target.device_id)
        with self._failures("query the primary"):
            await self._client.send(p4r.StreamMessageRequest(arbitration=update))
            async with loop_timeout(self._timeout_s):
                status = await self._arbitration()
        is_there = status.status.code in (GRPCStatusCode.OK, GRPCStatusCode.ALREADY_EXISTS)
        return status.election_id.high << 64 | status.election_id.low if is_there else None

    async def change(self, kind: p4r.Update.Type.ValueType, entity: Any) -> None:  # noqa: ANN401 - as above
        """Insert, modify or delete one entity; raise SessionError with the switch's reason."""
        update = p4r.Update(type=kind, entity=self._encoded(entity))
        request = p4r.WriteRequest(device_id=self._target.device_id, updates=[update])
        try:
            await self._client.write(request)
        except P4ClientError as error:
            detail = error.details.get(0)
            if detail is None:
                raise self._failure("write", error) from error
            raise SessionError(self.switch, "write", detail.message, code=detail.canonical_code.name) from error
        except TimeoutError as error:
            raise SessionError(self.switch, "write", f"no answer within {self._timeout_s:g} s") from error
        except grpc.aio.UsageError as error:
            raise SessionError(self.switch, "write", str(error)) from error

    def _encoded(self, entity: Any) -> p4r.Entity:  # noqa: ANN401 - as above
        try:
            encoded: p4r.Entity = entity.encode(self._schema)
        except (ValueError, KeyError, TypeError) as error:
            raise SessionError(self.switch, "encode", str(error)) from error
        return encoded

    async def _first_bid(self) -> p4r.MasterArbitrationUpdate:
        try:
            return await super()._first_bid()
        except SessionError as error:
            raise self._taken(self._election_id) if error.code == "INVALID_ARGUMENT" else error from error

    async def _await_primary(self, status: p4r.MasterArbitrationUpdate) -> None:
        """Replace a primary that has gone, but do not wait for a present one."""
        if status.status.code == GRPCStatusCode.ALREADY_EXISTS:
            raise self._taken(status.election_id.high << 64 | status.election_id.low)
        await super()._await_primary(status)

    def _taken(self, election_id: int) -> SessionError:
        cause = (
            f"another controller is primary, with election id {election_id}: --election-id {election_id + 1} takes over"
            " from it, but it may undo what is written"
        )
        return SessionError(self.switch, "become primary", cause)
