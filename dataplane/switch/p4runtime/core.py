"""The P4Runtime service without a transport: gRPC's servicer and the virtual fabric call the same object.

Requests and answers are the protobuf messages of p4.v1; the one error is P4RuntimeError. Every method may be called
from any thread. Locks are taken in the order config (held while a program is compiled), core (held for a whole batch),
state; packets, digests and everything else from the switch never wait for the first two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from finsy.proto import p4r

from dataplane.errors import SwitchError
from dataplane.switch.p4runtime import batches
from dataplane.switch.p4runtime.arbitration import Arbitration, Client, Send, decode_id
from dataplane.switch.p4runtime.config import PipelineStore
from dataplane.switch.p4runtime.context import Context
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.digests import LearnedList, Values
from dataplane.switch.p4runtime.entities import replication, tables
from dataplane.switch.p4runtime.errors import ERROR_SPACE, Code, P4RuntimeError, invalid, unimplemented, wrong_device
from dataplane.switch.pipeline import DigestMessage

API_VERSION = "1.5.0"
"""The implemented version of the P4Runtime API."""


DROPS = (
    "packet_in_too_short",
    "packet_in_no_primary",
    "packet_in_slow_client",
    "packet_out_refused",
    "digest_not_configured",
    "digest_no_primary",
    "digest_slow_client",
    "idle_notification_slow_client",
    "stream_error_slow_client",
)
"""Reasons to drop messages between controller and switch: the names in `P4RuntimeCore.drops`. Digests are counted by
message if none is configured or there is no primary, by list if a client does not read."""

_SLOW = {
    "packet": "packet_in_slow_client",
    "digest": "digest_slow_client",
    "idle_timeout_notification": "idle_notification_slow_client",
    "error": "stream_error_slow_client",
}


class P4RuntimeCore:
    """One switch's P4Runtime service.

    `epoch_ns` returns the timestamp for notifications, nanoseconds since 1970; by default the switch's own.
    """

    def __init__(self, switch: SwitchControl, *, epoch_ns: Callable[[], int] | None = None) -> None:
        self._switch = switch
        self._epoch_ns = epoch_ns or switch.now_ns
        self._lock = threading.RLock()
        self._config_lock = threading.Lock()
        self._drop_lock = threading.Lock()
        self._arbitration = Arbitration(switch.device_id)
        self._pipelines = PipelineStore(switch)
        self._wake: Callable[[], None] | None = None
        self._due_ns: int | None = None
        self._change_listeners: tuple[Callable[[], None], ...] = ()
        self.drops = dict.fromkeys(DROPS, 0)
        switch.on_packet_in(self._packet_in)
        switch.on_digests(self._digests)
        switch.on_port_status(self._port_status)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make calls wait meanwhile."""
        with self._config_lock, self._lock:
            yield

    def notice_program(self) -> None:
        """Serve the program that the switch loaded itself; raise ProgramError if its P4Info is invalid."""
        self._follow_ports()

    def capabilities(self, request: p4r.CapabilitiesRequest | None = None) -> p4r.CapabilitiesResponse:
        """Return the API version."""
        if request is not None and request.device_id:
            self._check_device(request.device_id)
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    def write(self, request: p4r.WriteRequest) -> p4r.WriteResponse:
        """Apply a batch; raise P4RuntimeError, with one detail per update if the batch was attempted."""
        with self._lock:
            self._check_device(request.device_id)
            self._check_primary(request)
            context = self._context()
            try:
                batches.write(context, request)
            finally:
                self._note_due()
                self._note_change()
        return p4r.WriteResponse()

    def read(self, request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
        """Return the selected entities; every role may read everything, primary or not."""
        with self._lock:
            self._check_device(request.device_id)
            self._arbitration.check_role(request.role)
            return batches.read(self._context(), request.entities)

    def set_pipeline(self, request: p4r.SetForwardingPipelineConfigRequest) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline; on any error the running one stays as it is.

        Everything else continues with the present pipeline while this one is prepared, which may take seconds.
        """
        with self._config_lock:
            self._check_device(request.device_id)
            self._check_primary(request)
            loaded = self._pipelines.load(request)
            with self._lock:
                self._check_primary(request)  # another client may have taken over meanwhile
                for port in self._ports_down():
                    if loaded is not None:
                        loaded.context.state.set_port_status(port, up=False)
                self._pipelines.apply(request, loaded)
                self._follow_ports()
                self._note_due()
                self._note_change()
        return p4r.SetForwardingPipelineConfigResponse()

    def get_pipeline(self, request: p4r.GetForwardingPipelineConfigRequest) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the pipeline's configuration, or its requested parts."""
        with self._lock:
            self._check_device(request.device_id)
            return self._pipelines.answer(request.response_type)

    def open_stream(self, send: Send) -> StreamSession:
        """Open a StreamChannel whose messages to the client go to `send`, which must not block."""
        return StreamSession(self, send)

    def join(self, send: Send, update: p4r.MasterArbitrationUpdate) -> Client:
        """Admit a stream to arbitration, once the writes of an earlier primary are done."""
        with self._lock:
            primaries = self._arbitration.primaries()
            client = self._arbitration.join(send, update)
            self._greet_primaries(primaries)
            return client

    def update(self, client: Client, update: p4r.MasterArbitrationUpdate) -> None:
        """Process a later arbitration update of an admitted stream."""
        with self._lock:
            primaries = self._arbitration.primaries()
            self._arbitration.update(client, update)
            self._greet_primaries(primaries)

    def _greet_primaries(self, before: list[Client]) -> None:
        """Send a new primary the digests that an earlier one received, acknowledged or not."""
        running = self._pipelines.running
        if running is not None and self._arbitration.primaries() != before:
            for learner in running.context.learners.values():
                learner.start_over()

    def leave(self, client: Client) -> None:
        """Forget a stream that ended."""
        self._arbitration.leave(client)

    def packet_out(self, client: Client, packet: p4r.PacketOut) -> None:
        """Inject a packet for a primary; raise P4RuntimeError, and count, if it is refused."""
        try:
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

    def acknowledge(self, client: Client, ack: p4r.DigestListAck) -> None:
        """Allow the contents of a digest list to be reported again; raise P4RuntimeError if there was no such list."""
        if not self._arbitration.is_primary(client):
            raise P4RuntimeError(Code.PERMISSION_DENIED, "only the primary may acknowledge digests")
        context = self._context(running=True)
        info = context.catalog.digests.get(ack.digest_id)
        if info is None:
            raise invalid(f"no digest has id {ack.digest_id:#010x}")
        if not context.learners[info.spec.name].acknowledge(ack.list_id):
            raise P4RuntimeError(Code.NOT_FOUND, f"{info.spec.name}: no list {ack.list_id} was sent")

    def count_drop(self, name: str, number: int = 1) -> None:
        """Count dropped messages under one of `DROPS`."""
        with self._drop_lock:
            self.drops[name] += number

    def count_slow(self, message: p4r.StreamMessageResponse) -> None:
        """Count a message that a client was too slow to read."""
        self.count_drop(_SLOW[message.WhichOneof("update") or "error"])

    def on_due(self, wake: Callable[[], None]) -> None:
        """Call `wake`, from any thread, when `tick` has work earlier than it last returned."""
        self._wake = wake

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener`, from the writer's thread, after each batch of writes and each new pipeline."""
        self._change_listeners += (listener,)

    def _note_change(self) -> None:
        for listener in self._change_listeners:
            listener()

    def now_ns(self) -> int:
        """Return the time on the switch's clock."""
        return self._switch.now_ns()

    def tick(self, now_ns: int) -> int | None:
        """Send what is due by now: digest lists and notifications of idle entries; return the time of the next work."""
        running = self._pipelines.running
        if running is None:
            return None
        for name, learner in running.context.learners.items():
            self._send_lists(running.context, name, learner.tick(now_ns))
        self._send_idle(running.context, now_ns)
        self._due_ns = self._next_due_ns(running.context)
        return self._due_ns

    def _packet_in(self, frame: bytes) -> None:
        running = self._pipelines.running
        primaries = self._arbitration.primaries()
        packet = None if running is None else running.context.catalog.packet_in.unpack(frame)
        if packet is None:
            self.count_drop("packet_in_too_short")
        elif not self._send(primaries, p4r.StreamMessageResponse(packet=packet)):
            self.count_drop("packet_in_no_primary")

    def _digests(self, messages: Sequence[DigestMessage]) -> None:
        """Receive the digests that the program sends to the control plane."""
        running, now_ns = self._pipelines.running, self._switch.now_ns()
        learned: dict[str, list[Values]] = {}
        for message in messages:
            learned.setdefault(message.digest, []).append(message.values)
        for name, values in learned.items():
            learner = None if running is None else running.context.learners.get(name)
            if running is None or learner is None or learner.config is None:
                self.count_drop("digest_not_configured", len(values))
            elif not self._arbitration.primaries():
                self.count_drop("digest_no_primary", len(values))
            else:
                self._send_lists(running.context, name, learner.learn(values, now_ns))
        self._note_due()

    def _send_lists(self, context: Context, digest: str, lists: Iterable[LearnedList]) -> None:
        info = context.catalog.digests_by_name[digest]
        for learned in lists:
            message = p4r.DigestList(digest_id=info.digest_id, list_id=learned.list_id, timestamp=self._epoch_ns())
            message.data.extend(info.layout.encode(values) for values in learned.messages)
            if not self._send(self._arbitration.primaries(), p4r.StreamMessageResponse(digest=message)):
                self.count_drop("digest_no_primary", len(learned.messages))

    def _send_idle(self, context: Context, now_ns: int) -> None:
        with context.state.lock:
            idle = context.idle.due(context.state, now_ns)
            entries = [tables.encode_idle(context, table, entry) for table, entry in idle]
        if entries:
            notification = p4r.IdleTimeoutNotification(table_entry=entries, timestamp=self._epoch_ns())
            message = p4r.StreamMessageResponse(idle_timeout_notification=notification)
            self._send(self._arbitration.primaries(), message)  # without a primary: sent again after another timeout

    @staticmethod
    def _send(clients: Iterable[Client], message: p4r.StreamMessageResponse) -> bool:
        """Send a message to clients; return whether there was any."""
        sent = False
        for client in clients:
            client.send(message)
            sent = True
        return sent

    def _port_status(self, port: int, up: bool) -> None:
        """Make copies of packets follow a port's status, in the running state and in a saved one."""
        for context in self._pipelines.contexts():
            context.state.follow_port(port, up)
        self._follow_ports()

    def _follow_ports(self) -> None:
        for context in self._pipelines.contexts():
            with context.state.lock:
                replication.follow_ports(context.state, context.catalog.strings.ports)

    def _ports_down(self) -> Iterable[int]:
        return () if self._switch.state is None else self._switch.state.ports_down

    def _note_due(self) -> None:
        """Have `tick` called earlier if needed."""
        running = self._pipelines.running
        due_ns = None if running is None else self._next_due_ns(running.context)
        if due_ns is not None and (self._due_ns is None or due_ns < self._due_ns):
            self._due_ns = due_ns
            if self._wake is not None:
                self._wake()

    @staticmethod
    def _next_due_ns(context: Context) -> int | None:
        with context.state.lock:
            idle_ns = context.idle.next_due_ns()
        times = [idle_ns, *(learner.next_due_ns() for learner in context.learners.values())]
        return min((time_ns for time_ns in times if time_ns is not None), default=None)

    def _context(self, *, running: bool = False) -> Context:
        pipeline = self._pipelines.running if running else self._pipelines.current
        if pipeline is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
        return pipeline.context

    def _check_device(self, device_id: int) -> None:
        ours = self._switch.device_id
        if device_id != ours:
            raise wrong_device(device_id, ours)

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
        """Process one message; answer a bad packet with a StreamError, raise for errors that end the stream."""
        kind = request.WhichOneof("update")
        if kind == "arbitration":
            self._arbitrate(request.arbitration)
        elif self._client is None:
            raise P4RuntimeError(Code.FAILED_PRECONDITION, "a stream's first message is a MasterArbitrationUpdate")
        elif kind == "packet":
            self._packet_out(self._client, request.packet)
        elif kind == "digest_ack":
            self._acknowledge(self._client, request.digest_ack)
        elif kind == "other":
            error = _stream_error(unimplemented(request.other.type_url or "an empty message"))
            error.other.other.CopyFrom(request.other)
            self._send(p4r.StreamMessageResponse(error=error))
        else:  # messages of a newer API version
            self._send(p4r.StreamMessageResponse(error=_stream_error(unimplemented("an empty or unknown message"))))

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
            error = _stream_error(refusal)
            error.packet_out.packet_out.CopyFrom(packet)
            self._send(p4r.StreamMessageResponse(error=error))

    def _acknowledge(self, client: Client, ack: p4r.DigestListAck) -> None:
        try:
            self._core.acknowledge(client, ack)
        except P4RuntimeError as refusal:
            error = _stream_error(refusal)
            error.digest_list_ack.digest_list_ack.CopyFrom(ack)
            self._send(p4r.StreamMessageResponse(error=error))


def _stream_error(refusal: P4RuntimeError) -> p4r.StreamError:
    return p4r.StreamError(canonical_code=refusal.code, message=refusal.message, space=ERROR_SPACE, code=refusal.code)
