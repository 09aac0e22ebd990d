"""A session to a switch over gRPC, by finsy's client: one stream for arbitration, calls for everything else.

A session lives once: from `connect` to its first failure, to the loss of the primary role or to `close`. A caller
that wants the switch back opens another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace

import grpc
import grpc.aio
from finsy import GRPCCredentialsTLS, P4ClientError, P4RuntimeVersion, P4Schema
from finsy.grpcutil import GRPCStatusCode
from finsy.pbutil import PBMessage
from finsy.proto import p4r

from controller.common.errors import LostLeaseError, SessionError
from controller.network.p4runtime.client import SwitchClient
from controller.network.p4runtime.session import (
    ELECTION_ID,
    Bundling,
    OnLearned,
    cache_of,
    counts_answer,
    counts_request,
    digests_request,
    encoded_updates,
    learn_request,
    learned,
    packets_answer,
    packets_request,
    read_answer,
    read_request,
)
from controller.network.tables.entities import Batch, Entity, EntityKey
from dataplane.errors import AccessError, ConfigError
from dataplane.event_loop.deadlines import loop_timeout
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import client_credentials
from dataplane.rpc.addresses import target_of
from dataplane.rpc.channels import is_encrypted, tls_of, uncallable
from dataplane.running import until_first_ends
from dataplane.switch.p4runtime.errors import told_device

LOGGER = logging.getLogger("millrace.controller")

_OK, _BACKUP, _NO_PRIMARY = GRPCStatusCode.OK, GRPCStatusCode.ALREADY_EXISTS, GRPCStatusCode.NOT_FOUND

_UNREACHABLE = "failed to connect to all addresses"


@dataclass(frozen=True, slots=True)
class Target:
    """A switch's address, `unix:/path`, `host:port` or `plain:host:port`, and its P4Runtime device id."""

    switch: str
    address: str
    device_id: int


class _Credentials(GRPCCredentialsTLS):
    """Our credentials in finsy's form; the files are read when a channel opens."""

    def __init__(self, tls: TlsSettings) -> None:
        super().__init__(cacert=None, cert=None, private_key=None, target_name_override=tls.server_name)
        self._tls = tls

    def to_client_credentials(self) -> grpc.ChannelCredentials:
        """Return gRPC's; raise ConfigError or AccessError."""
        return client_credentials(self._tls)


class GrpcSession:
    """An `AsyncSession` as the switch's primary controller."""

    def __init__(
        self,
        target: Target,
        schema: P4Schema,
        *,
        tls: TlsSettings | None = None,
        election_id: int = ELECTION_ID,
        timeout_s: float = 10.0,
        probe_s: float = 5.0,
        permit: Callable[[], object] | None = None,
    ) -> None:
        """Check every `probe_s` whether the switch still answers; `timeout_s` limits that, and connecting.

        `permit`, of a controller in a pair, is called before each write and raises LostLeaseError to prevent it; the
        election id is a fencing token then, and is never raised.
        """
        self._permit = permit
        self._target, self._schema, self._timeout_s, self._tls = target, schema, timeout_s, tls
        self._probe_s = probe_s
        self._election_id = election_id
        loaded_tls = tls_of(tls) if is_encrypted(target.address, tls) else None
        credentials = None if loaded_tls is None else _Credentials(loaded_tls)
        self._client = SwitchClient(target_of(target.address), credentials, timeout_s)
        self._listener: asyncio.Task[None] | None = None
        self._learners: dict[str, OnLearned] = {}
        self._ignored: set[str] = set()

    @property
    def switch(self) -> str:
        """The switch's name."""
        return self._target.switch

    async def connect(self) -> None:
        """Open the stream and become primary, waiting as backup while another controller is; raise SessionError."""
        async with self._connecting():
            async with loop_timeout(self._timeout_s):
                await self._client.open(schema=self._schema, complete_request=self._complete)
                status = await self._first_bid()
                await self._ask_version()
            await self._await_primary(status)
        self._listener = asyncio.create_task(self._listen())

    async def connect_to_read(self) -> None:
        """Prepare to read, alongside the switch's controller; no other operation is possible."""
        async with self._connecting(), loop_timeout(self._timeout_s):
            await self._client.open(schema=self._schema, complete_request=self._complete)
            await self._ask_version()

    async def ask_device(self) -> None:
        """Take the device id that the switch tells; keep the target's with a switch that tells none.

        P4Runtime has no question for it: ours answers one for another device with its own.
        """
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._target.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        with self._failures("read"):
            try:
                await self._client.pipeline(ask)
            except P4ClientError as error:
                # Whatever else is wrong, the next request reports.
                told = told_device(error.message) if error.code is GRPCStatusCode.NOT_FOUND else None
                self._target = replace(self._target, device_id=self._target.device_id if told is None else told)

    async def wait_lost(self) -> SessionError:
        """Return why the session ended, when it has."""
        if self._listener is None:
            return SessionError(self.switch, "listen", "the session never connected")
        try:
            # Cancelling this wait must not end the listener.
            await asyncio.shield(self._listener)
        except SessionError as error:
            return error
        return SessionError(self.switch, "listen", "the session was closed")

    async def close(self) -> None:
        """End the session; calling it again does nothing."""
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._client.close()

    async def install_pipeline(self) -> bool:
        """Send the program unless the switch reports that it runs it (same cookie); return whether it was sent."""
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._target.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        with self._failures("install pipeline"):
            if await self._cookie(ask) == self._schema.p4cookie:
                return False
            commit = p4r.SetForwardingPipelineConfigRequest(
                device_id=self._target.device_id,
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            )
            await self._client.set_pipeline(commit, cache_of(self._schema.p4cookie).program(self._schema))
        return True

    async def check_program(self) -> None:
        """Raise SessionError if the switch runs no program, or one without our tables."""
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._target.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        with self._failures("read"):
            p4info = (await self._client.pipeline(ask)).config.p4info
        there = {(table.preamble.id, table.preamble.name) for table in p4info.tables}
        missing = next((table for table in self._schema.tables if (table.id, table.name) not in there), None)
        if missing is not None:
            cause = f"it runs another program, which has no table {missing.alias}"
            raise SessionError(self.switch, "read", cause if p4info.tables else "it has no program with tables")

    async def read(self) -> dict[EntityKey, Entity]:
        """Return all entities of the switch that the controller may write."""
        answers = await self._answers(read_request(self._schema, self._target.device_id))
        return read_answer(self._schema, self.switch, answers)

    async def write(self, batch: Batch) -> None:
        """Execute updates; raise SessionError that names those that were refused."""
        updates = encoded_updates(self._schema, self.switch, batch)
        with self._failures("write", batch):
            await self._client.write(p4r.WriteRequest(device_id=self._target.device_id), updates)

    async def packets(self, counter: str) -> dict[EntityKey, int]:
        """Return the packets of each entry of a direct counter's table."""
        answers = await self._answers(packets_request(self._schema, self._target.device_id, counter))
        return packets_answer(self._schema, self.switch, answers)

    async def counts(self, counter: str) -> list[int]:
        """Return the packets of each index of a counter."""
        answers = await self._answers(counts_request(self._schema, self._target.device_id, counter))
        return counts_answer(self._schema, self.switch, answers)

    async def learn(self, digest: str, bundling: Bundling, on_learned: OnLearned) -> None:
        """Pass a program's digests to `on_learned`, in place of the previous handler."""
        self._learners[digest] = on_learned
        is_known = await self._sends_digest(digest)
        request = learn_request(self._schema, self._target.device_id, digest, bundling, is_known=is_known)
        with self._failures("learn"):
            await self._client.write(request)

    async def _sends_digest(self, digest: str) -> bool:
        """Return whether the switch sends a digest already."""
        try:
            answers = await self._answers(digests_request(self._schema, self._target.device_id, digest))
        except SessionError as error:
            if error.code == "NOT_FOUND":  # as bmv2 reports it
                return False
            raise
        return any(answer.entities for answer in answers)

    @asynccontextmanager
    async def _connecting(self) -> AsyncIterator[None]:
        try:
            problem = uncallable(self._target.address, self._tls)
            if problem is not None:
                raise SessionError(self.switch, "connect", f"{self._target.address}: {problem}")
            yield
        except TimeoutError as error:
            cause = f"no answer from {self._target.address} within {self._timeout_s:g} s"
            raise SessionError(self.switch, "connect", cause) from error
        except (P4ClientError, RuntimeError, ValueError, OSError, ConfigError, AccessError) as error:
            raise self._failure("connect", error) from error

    async def _ask_version(self) -> None:
        reply = await self._client.capabilities()
        self._schema.set_p4runtime_version(P4RuntimeVersion.parse(reply.p4runtime_api_version))

    async def _answers(self, request: p4r.ReadRequest) -> list[p4r.ReadResponse]:
        with self._failures("read"):
            return await self._client.read(request)

    async def _cookie(self, ask: p4r.GetForwardingPipelineConfigRequest) -> int | None:
        try:
            config = (await self._client.pipeline(ask)).config
        except P4ClientError as error:
            if error.is_pipeline_missing:
                return None
            raise
        return config.cookie.cookie if config.HasField("cookie") else None

    def _complete(self, request: PBMessage) -> None:
        """Sign requests that only a primary may send; finsy calls this for every request."""
        if isinstance(request, p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest):
            if self._permit is not None:
                try:
                    self._permit()
                except LostLeaseError as error:
                    raise SessionError(self.switch, "write", str(error)) from error
            request.election_id.CopyFrom(self._bid_id())

    def _bid_id(self) -> p4r.Uint128:
        return p4r.Uint128(high=self._election_id >> 64, low=self._election_id & ((1 << 64) - 1))

    async def _bid(self) -> None:
        update = p4r.MasterArbitrationUpdate(device_id=self._target.device_id, election_id=self._bid_id())
        await self._client.send(p4r.StreamMessageRequest(arbitration=update))

    async def _first_bid(self) -> p4r.MasterArbitrationUpdate:
        """Ask to become primary, and return the answer; raise SessionError, with advice, if the id is taken."""
        await self._bid()
        try:
            return await self._arbitration()
        except P4ClientError as error:
            if error.code is not GRPCStatusCode.INVALID_ARGUMENT:
                raise
            cause = (
                f"{error.message}: another controller may also have election id {self._election_id}; "
                "set another election_id in the settings of this one, or none: it is a new one at each start then"
            )
            raise SessionError(self.switch, "become primary", cause, code=error.code.name) from error

    async def _arbitration(self) -> p4r.MasterArbitrationUpdate:
        """Return the next arbitration update; the first other message of each kind is logged."""
        while True:
            message = await self._client.receive()
            if message.WhichOneof("update") == "arbitration":
                return message.arbitration
            if message.WhichOneof("update") == "digest" and self._learners:
                await self._learned(message)
            else:
                self._ignore(message, "nothing here asked for it")

    async def _learned(self, message: p4r.StreamMessageResponse) -> None:
        try:
            learned_list, acknowledgement = learned(self._schema, message)
        except (ValueError, KeyError) as error:
            self._ignore(message, f"it does not fit the program: {error}")
            return
        if learned_list.digest in self._learners:
            self._learners[learned_list.digest](learned_list)
        await self._client.send(acknowledgement)

    def _ignore(self, message: p4r.StreamMessageResponse, reason: str) -> None:
        """Log a message that is not used; one line per kind, as a switch may send them at any rate."""
        kind = str(message.WhichOneof("update"))
        if kind == "error":
            reason = f"code {message.error.canonical_code}: {message.error.message}"
        if kind not in self._ignored:
            LOGGER.warning("switch %s: ignored a stream message (%s): %s", self.switch, kind, reason)
        self._ignored.add(kind)

    async def _await_primary(self, status: p4r.MasterArbitrationUpdate) -> None:
        while status.status.code != _OK:
            if status.status.code not in (_BACKUP, _NO_PRIMARY):
                raise SessionError(self.switch, "become primary", status.status.message, code=str(status.status.code))
            if status.status.code == _NO_PRIMARY:
                # There is no primary, but there was one with a higher election id: the switch wants at least that id.
                highest = status.election_id.high << 64 | status.election_id.low
                if self._permit is not None:
                    cause = f"it has seen election id {highest}, a newer token than this controller's"
                    raise SessionError(self.switch, "become primary", cause)
                self._election_id = max(self._election_id, highest)
                await self._bid()
            else:
                LOGGER.warning("switch %s: another controller is primary; waiting as backup", self.switch)
            status = await self._arbitration()

    async def _listen(self) -> None:
        """Raise SessionError when the stream ends, another controller takes over or the switch stops answering."""
        await until_first_ends(self._follow(), self._probe())

    async def _probe(self) -> None:
        """Send a small request regularly: a machine that loses power closes no connection.

        It is a call rather than an HTTP/2 PING: other servers disconnect a client that sends those often.
        """
        while True:
            await asyncio.sleep(self._probe_s)
            with self._failures("probe"):
                await self._client.capabilities()

    async def _follow(self) -> None:
        """Raise SessionError when the stream ends or another controller takes over."""
        while True:
            try:
                status = await self._arbitration()
            except (P4ClientError, RuntimeError) as error:
                raise self._failure("listen", error) from error
            if status.status.code != _OK:
                raise SessionError(self.switch, "listen", "another controller became primary")

    @contextmanager
    def _failures(self, doing: str, batch: Batch = ()) -> Iterator[None]:
        """Turn any failure of a call into a SessionError, unless the caller itself is being cancelled."""
        if self._client.channel is None:
            raise SessionError(self.switch, doing, "the session is closed")
        try:
            yield
        except P4ClientError as error:
            raise self._refusal(doing, batch, error) from error
        except TimeoutError as error:
            cause = f"no answer from {self._target.address} {error}"
            raise SessionError(self.switch, doing, cause, code="DEADLINE_EXCEEDED") from error
        except grpc.aio.UsageError as error:
            raise SessionError(self.switch, doing, str(error)) from error
        except asyncio.CancelledError:
            # gRPC cancels the calls of a channel that closes; only the task itself knows whether it was meant.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise SessionError(self.switch, doing, "the session was closed") from None

    def _refusal(self, doing: str, batch: Batch, error: P4ClientError) -> SessionError:
        refused = tuple(sorted(index for index in error.details if index < len(batch)))
        if not refused:
            return self._failure(doing, error)
        detail = error.details[refused[0]]
        cause = f"{batch[refused[0]]}: {detail.message} ({len(refused)} of {len(batch)} updates refused)"
        return SessionError(self.switch, doing, cause, code=detail.canonical_code.name, refused=refused)

    def _failure(self, doing: str, error: Exception) -> SessionError:
        if isinstance(error, P4ClientError):
            message = error.message or "no reason given"
            if _UNREACHABLE in message:  # gRPC repeats its address four times
                message = f"cannot connect: {message.rpartition(': ')[2]}"
            return SessionError(self.switch, doing, message, code=error.code.name)
        return SessionError(self.switch, doing, str(error) or type(error).__name__)
