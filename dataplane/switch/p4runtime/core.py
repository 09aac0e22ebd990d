"""The P4Runtime service without a transport: gRPC's servicer and the virtual fabric call the same object.

Requests and answers are the protobuf messages of p4.v1; the one error is P4RuntimeError. Every method may be called
from any thread. Locks are taken in the order core, state, and nothing is sent to a client that would wait for either.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from finsy.proto import p4r

from dataplane.errors import SwitchError
from dataplane.switch.p4runtime import batches
from dataplane.switch.p4runtime.arbitration import Arbitration, Client, Send, decode_id
from dataplane.switch.p4runtime.config import PipelineStore
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented

API_VERSION = "1.5.0"
"""The version of the P4Runtime API that is implemented."""


DROPS = ("packet_in_too_short", "packet_in_no_primary", "packet_in_slow_client", "packet_out_refused")
"""Why packets between controller and switch are dropped: the names in `P4RuntimeCore.drops`."""


class P4RuntimeCore:
    """One switch's P4Runtime service."""

    def __init__(self, switch: SwitchControl) -> None:
        self._switch = switch
        self._lock = threading.RLock()
        self._arbitration = Arbitration(switch.device_id)
        self._pipelines = PipelineStore(switch)
        self.drops = dict.fromkeys(DROPS, 0)
        switch.on_packet_in(self._packet_in)

    def capabilities(self, request: p4r.CapabilitiesRequest | None = None) -> p4r.CapabilitiesResponse:
        """Return the API version."""
        if request is not None and request.device_id:
            self._check_device(request.device_id)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def write(self, request: p4r.WriteRequest) -> p4r.WriteResponse:
        """Apply a batch; raise P4RuntimeError, with one detail an update if the batch was attempted."""
        with self._lock:
            self._check_device(request.device_id)
            self._check_primary(request)
            context = self._context()
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise unimplemented("an atomicity other than CONTINUE_ON_ERROR")
            batches.write(context, request.updates)
        return p4r.WriteResponse()

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        """Return what the request selects; every role may read everything, primary or not."""
        with self._lock:
            self._check_device(request.device_id)
            return batches.read(self._context(), request.entities)

    def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline; on any error the running one stays as it is."""
        with self._lock:
            self._check_device(request.device_id)
            self._check_primary(request)
            self._pipelines.apply(request)
        return p4r.SetForwardingPipelineConfigResponse()

    def get_pipeline(self, request: p4r.GetForwardingPipelineConfigRequest) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline's configuration, or the parts that are asked for."""
        with self._lock:
            self._check_device(request.device_id)
            return self._pipelines.answer(request.response_type)

    def open_stream(self, send: Send) -> StreamSession:
        """Open a StreamChannel whose messages to the client go to `send`, which must not block."""
        return StreamSession(self, send)

    def join(self, send: Send, update: p4r.MasterArbitrationUpdate) -> Client:
        """Admit a stream to arbitration."""
        with self._lock:
            return self._arbitration.join(send, update)

    def update(self, client: Client, update: p4r.MasterArbitrationUpdate) -> None:
        """Take a later arbitration update of an admitted stream."""
        with self._lock:
            self._arbitration.update(client, update)

    def leave(self, client: Client) -> None:
        """Forget a stream that ended."""
        with self._lock:
            self._arbitration.leave(client)

    def packet_out(self, client: Client, packet: p4r.PacketOut) -> None:
        """Inject a packet for a primary; raise P4RuntimeError, and count, if it is refused."""
        try:
            with self._lock:
                if not self._arbitration.is_primary(client):
                    raise P4RuntimeError(Code.PERMISSION_DENIED, "only the primary may send packets")
                header = self._context(running=True).catalog.packet_out.pack(packet.metadata)
            self._switch.packet_out(header + packet.payload)
        except P4RuntimeError:
            self.count_drop("packet_out_refused")
            raise
        except SwitchError as error:
            self.count_drop("packet_out_refused")
            raise P4RuntimeError(Code.INTERNAL, str(error)) from error

    def count_drop(self, name: str) -> None:
        """Count one packet that was dropped, under one of `DROPS`."""
        with self._lock:
            self.drops[name] += 1

    def _packet_in(self, frame: bytes) -> None:
        with self._lock:
            running = self._pipelines.running
            primaries = self._arbitration.primaries()
        packet = None if running is None else running.context.catalog.packet_in.unpack(frame)
        if packet is None:
            self.count_drop("packet_in_too_short")
        elif not primaries:
            self.count_drop("packet_in_no_primary")
        else:
            for client in primaries:
                client.send(p4r.StreamMessageResponse(packet=packet))

    def _context(self, *, running: bool = False) -> Context:
        pipeline = self._pipelines.running if running else self._pipelines.current
        if pipeline is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
        return pipeline.context

    def _check_device(self, device_id: int) -> None:
        if device_id != self._switch.device_id:
            raise P4RuntimeError(Code.NOT_FOUND, f"there is no device {device_id} here")

    def _check_primary(self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest) -> None:
        election_id = decode_id(request.election_id) if request.HasField("election_id") else None
        self._arbitration.check_primary(request.role, election_id)


class StreamSession:
    """One StreamChannel. After `handle` raised, or at the end of the stream, the caller calls `close`."""

    def __init__(self, core: P4RuntimeCore, send: Send) -> None:
        self._core = core
        self._send = send
        self._client: Client | None = None

    def handle(self, request: p4r.StreamMessageRequest) -> None:
        """Take one message; answer what is wrong with a packet by a StreamError, raise for what ends the stream."""
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitrate(request.arbitration)
        elif self._client is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "a stream's first message is a MasterArbitrationUpdate")
        elif kind == "packet":
            self._packet_out(self._client, request.packet)
        elif kind == "digest_ack":
            error = p4r.StreamError(canonical_code=Code.INVALID_ARGUMENT, message="the program has no digests")
            error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
            self._send(p4r.StreamMessageResponse(error=error))
        elif kind == "other":
            error = p4r.StreamError(canonical_code=Code.UNIMPLEMENTED, message="not supported by this switch")
            error.other.other.CopyFrom(request.other)
            self._send(p4r.StreamMessageResponse(error=error))
        else:
            raise invalid("the stream message is empty")

    def close(self) -> None:
        """Leave arbitration; calling it again does nothing."""
        client, self._client = self._client, None
        if client is not None:
            self._core.leave(client)

    def _arbitrate(self, update: p4r.MasterArbitrationUpdate) -> None:
        if self._client is None:
            self._client = self._core.join(self._send, update)
        else:
            self._core.update(self._client, update)

    def _packet_out(self, client: Client, packet: p4r.PacketOut) -> None:
        try:
            self._core.packet_out(client, packet)
        except P4RuntimeError as refusal:
            error = p4r.StreamError(canonical_code=refusal.code, message=refusal.message)
            error.packet_out.packet_out.CopyFrom(packet)
            self._send(p4r.StreamMessageResponse(error=error))
