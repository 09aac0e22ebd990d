"""A session to a switch in the same process: the same messages as over gRPC, without transport or waiting."""

from __future__ import annotations

from finsy import P4RuntimeVersion, P4Schema
from finsy.proto import p4r

from controller.common.errors import SessionError
from controller.network.p4runtime.session import (
    ELECTION_ID,
    Bundling,
    OnLearned,
    digests_request,
    learn_request,
    learned,
    packets_answer,
    packets_request,
    read_answer,
    read_request,
    refusals,
    write_request,
)
from controller.network.tables.entities import Batch, Entity, EntityKey
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.errors import P4RuntimeError


class InProcessSession:
    """A `Session` over a switch's P4RuntimeCore, for virtual time."""

    def __init__(
        self, switch: str, device_id: int, core: P4RuntimeCore, schema: P4Schema, election_id: int = ELECTION_ID
    ) -> None:
        self._switch, self._device_id, self._core, self._schema = switch, device_id, core, schema
        self._election_id = p4r.Uint128(low=election_id)
        self._primary = False
        self._learners: dict[str, OnLearned] = {}
        self._stream = core.open_stream(self._receive)
        schema.set_p4runtime_version(P4RuntimeVersion.parse(core.capabilities().p4runtime_api_version))

    @property
    def switch(self) -> str:
        """The switch's name."""
        return self._switch

    def become_primary(self) -> None:
        """Bid for primary; raise SessionError if another controller bids higher."""
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=self._election_id)
        try:
            self._stream.handle(p4r.StreamMessageRequest(arbitration=update))
        except P4RuntimeError as error:
            raise SessionError(self._switch, "become primary", error.message, code=error.code.name) from error
        if not self._primary:
            raise SessionError(self._switch, "become primary", "another controller is primary")

    def close(self) -> None:
        """Leave the switch without a primary."""
        self._stream.close()

    def install_pipeline(self) -> bool:
        """Send the program unless the switch reports that it runs it (same cookie); return whether it was sent."""
        ask = p4r.GetForwardingPipelineConfigRequest(
            device_id=self._device_id, response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY
        )
        try:
            config = self._core.get_pipeline(ask).config
            if config.HasField("cookie") and config.cookie.cookie == self._schema.p4cookie:
                return False
            self._core.set_pipeline(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=self._device_id,
                    election_id=self._election_id,
                    action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                    config=self._schema.get_pipeline_config(),
                )
            )
        except P4RuntimeError as error:
            raise SessionError(self._switch, "install pipeline", error.message, code=error.code.name) from error
        return True

    def read(self) -> dict[EntityKey, Entity]:
        """Return all entities of the switch that the controller may write."""
        return read_answer(self._schema, self._switch, self._answers(read_request(self._schema, self._device_id)))

    def write(self, batch: Batch) -> None:
        """Execute updates; raise SessionError that names those that were refused."""
        request = write_request(self._schema, self._switch, self._device_id, batch)
        request.election_id.CopyFrom(self._election_id)
        try:
            self._core.write(request)
        except P4RuntimeError as error:
            failed, first = refusals(batch, error.details)
            cause = first or error.message
            raise SessionError(self._switch, "write", cause, code=error.code.name, refused=failed) from error

    def packets(self, counter: str) -> dict[EntityKey, int]:
        """Return the packets of each entry of a direct counter's table."""
        answers = self._answers(packets_request(self._schema, self._device_id, counter))
        return packets_answer(self._schema, self._switch, answers)

    def learn(self, digest: str, bundling: Bundling, on_learned: OnLearned) -> None:
        """Pass a program's digests to `on_learned`, in place of the previous handler."""
        configured = self._answers(digests_request(self._schema, self._device_id, digest))
        is_known = any(answer.entities for answer in configured)
        request = learn_request(self._schema, self._device_id, digest, bundling, is_known=is_known)
        request.election_id.CopyFrom(self._election_id)
        self._learners[digest] = on_learned
        try:
            self._core.write(request)
        except P4RuntimeError as error:
            raise SessionError(self._switch, "learn", error.message, code=error.code.name) from error

    def _answers(self, request: p4r.ReadRequest) -> list[p4r.ReadResponse]:
        try:
            return list(self._core.read(request))
        except P4RuntimeError as error:
            raise SessionError(self._switch, "read", error.message, code=error.code.name) from error

    def _receive(self, message: p4r.StreamMessageResponse) -> None:
        if message.WhichOneof("update") == "arbitration":
            self._primary = message.arbitration.status.code == 0
        elif message.WhichOneof("update") == "digest" and self._learners:
            learned_list, acknowledgement = learned(self._schema, message)
            if learned_list.digest in self._learners:
                self._learners[learned_list.digest](learned_list)
            self._stream.handle(acknowledgement)
