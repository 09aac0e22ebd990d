"""The interpreted pipeline: parser, ingress, egress and deparser around the switch's clones, copies and drops.

The order of clone, resubmit, multicast and drop, and what each copy keeps, follow targets/simple_switch of
p4lang/behavioral-model.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataplane.program.model import Digest, Program
from dataplane.program.operations import SizedConstant
from dataplane.switch.interpreter.calculations import bind_verify
from dataplane.switch.interpreter.control import bind_pipeline
from dataplane.switch.interpreter.deparser import bind_deparser, emitted_bytes
from dataplane.switch.interpreter.layout import (
    CLONE_LIST,
    CLONE_SESSION,
    DIGEST,
    EXIT,
    INGRESS_LENGTH,
    PACKET_LENGTH,
    PER_PACKET,
    RECIRCULATE,
    RESUBMIT,
    SESSION_VALID,
    TRUNCATE,
    Fields,
    Layout,
    Moment,
    PacketFault,
    reset_metadata,
)
from dataplane.switch.interpreter.parser import bind_parser
from dataplane.switch.interpreter.primitives import Binder
from dataplane.switch.interpreter.state import PipelineState
from dataplane.switch.interpreter.tracer import Tracer
from dataplane.switch.pipeline import Dequeued, DigestMessage, EgressResult, Frame, Output, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import CloneSession, Replica
from dataplane.switch.v1model import (
    DIGEST_QUEUE_MESSAGES,
    DROP_PORT,
    MAX_RESUBMITS,
    ORIGINALS,
    PRIORITIES,
    InstanceType,
)


@dataclass(slots=True)
class Packet:
    """A parsed packet: its state, its payload, and its ingress port."""

    fields: Fields
    payload: bytes
    port: int


class InterpretedPipeline:
    """Runs a program against a switch's state; never raises on a frame, whatever its bytes.

    `drops` counts packets that ended here, by reason; `parser_errors` counts packets by error, most of which proceed as
    the program decides.
    """

    def __init__(self, program: Program, state: PipelineState, *, rng: SplitMix, tracer: Tracer | None = None) -> None:
        self.drops: dict[str, int] = Counter()
        self.parser_errors: dict[str, int] = Counter()
        self._program, self._state = program, state
        self._layout = layout = Layout(program)
        self._moment = Moment()
        binder = Binder(layout, state, rng, self._moment, tracer)
        self._parse = bind_parser(program, layout, binder, state.value_sets)
        self._verify = bind_verify(program.checksums, layout, tracer)
        self._ingress = bind_pipeline(program.ingress, state, layout, binder)
        self._egress = bind_pipeline(program.egress, state, layout, binder)
        self._deparse = bind_deparser(program, layout, binder)
        self._emitted_bytes = emitted_bytes(program, layout)
        self._lists = {number: layout.slots_of(refs) for number, refs in program.field_lists.items()}
        self._error_names = {code: name for name, code in program.errors.items()}
        self._digests = [_bind_digest(digest, layout) for digest in program.digests.values()]
        self._messages: deque[DigestMessage] = deque()
        self._bind_metadata(layout)

    def _bind_metadata(self, layout: Layout) -> None:
        standard = layout.headers["standard_metadata"]
        self._ingress_port, self._egress_port = standard.slot("ingress_port"), standard.slot("egress_port")
        self._egress_spec, self._packet_length = standard.slot("egress_spec"), standard.slot("packet_length")
        self._instance_type = standard.slot("instance_type")
        self._parser_error = self._setter("standard_metadata.parser_error")
        self._checksum_error = self._setter("standard_metadata.checksum_error")
        self._ingress_time = self._setter("intrinsic_metadata.ingress_global_timestamp")
        self._egress_time = self._setter("intrinsic_metadata.egress_global_timestamp")
        self._group, self._priority = layout.find("intrinsic_metadata.mcast_grp"), layout.find(_PRIORITY)
        self._replica_id = self._setter("intrinsic_metadata.egress_rid")
        self._queue_id = self._setter("queueing_metadata.qid")
        queueing = [f"queueing_metadata.{name}" for name in _QUEUEING]
        present = all(layout.find(name) is not None for name in queueing)
        self._queueing = [self._setter(name) for name in queueing] if present else []

    def _setter(self, name: str) -> Callable[[Fields, int], None]:
        """Return a closure that sets a field for the switch; it does nothing if the program has no such field."""
        ref = self._program.find_field(name)
        if ref is None:
            return lambda _fields, _value: None
        slot, mask = self._layout.slot(ref), (1 << self._layout.spec(ref).width_bits) - 1

        def store(fields: Fields, value: int) -> None:
            fields[slot] = value & mask

        return store

    def _drop(self, reason: str) -> None:
        """Count a packet that ends here."""
        self.drops[reason] += 1

    # ---- ingress

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        """Parse and run ingress; return the packets to queue, clones and replicas included, in bmv2's order."""
        self._moment.now_us = now_us
        placements: list[Placement] = []
        for frame in frames:
            fields = self._layout.template.copy()
            fields[self._ingress_port] = frame.port & _PORT_MASK
            self._set_length(fields, len(frame.data))
            fields[INGRESS_LENGTH] = len(frame.data)
            self._ingress_time(fields, now_us)
            self._enter(Packet(fields, b"", frame.port), frame.data, placements)
        return placements

    def _set_length(self, fields: Fields, length: int) -> None:
        fields[PACKET_LENGTH] = length
        fields[self._packet_length] = length & _LENGTH_MASK

    def _enter(self, packet: Packet, data: bytes, placements: list[Placement]) -> None:
        """Take a packet through ingress, and again for each resubmission."""
        for _ in range(MAX_RESUBMITS + 1):
            try:
                again = self._run_ingress(packet, data, placements)
            except PacketFault as fault:
                self._drop(fault.reason)
                return
            if again is None:
                return
            packet = again
        self._drop("resubmit_limit")

    def _run_ingress(self, packet: Packet, data: bytes, placements: list[Placement]) -> Packet | None:
        """Parse and run ingress once; return the packet to resubmit, if requested."""
        fields = packet.fields
        parsed, error = self._parse(fields, data)
        packet.payload = data[parsed:]
        self._moment.payload = packet.payload
        self._note_errors(packet, error)
        self._ingress(fields)
        fields[EXIT] = 0
        if fields[CLONE_SESSION]:
            self._clone_ingress(packet, data, placements)
        if fields[DIGEST]:
            self._send_digest(fields)
        if fields[RESUBMIT]:
            return self._resubmitted(packet, len(data))
        group = 0 if self._group is None else fields[self._group]
        if group:
            self._multicast(packet, group, placements)
        elif fields[self._egress_spec] == DROP_PORT:
            self._drop("ingress_drop")
        else:
            fields[self._instance_type] = InstanceType.NORMAL
            self._place(packet, fields[self._egress_spec], self._queue_of(fields), placements)
        return None

    def _note_errors(self, packet: Packet, error: int) -> None:
        fields = packet.fields
        self._parser_error(fields, error)
        name = self._error_names.get(error, str(error))
        if name != "NoError":
            self.parser_errors[name] += 1
        self._checksum_error(fields, 0 if self._verify(fields, packet.payload) else 1)

    def _send_digest(self, fields: Fields) -> None:
        if len(self._messages) >= DIGEST_QUEUE_MESSAGES:
            self._drop("digest_queue_full")
        else:
            self._messages.append(self._digests[fields[DIGEST] - 1](fields))

    def take_digests(self) -> list[DigestMessage]:
        """Return the digests sent since the last call, oldest first; a full queue drops and counts the newest."""
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def _resubmitted(self, packet: Packet, length: int) -> Packet:
        fields = self._layout.template.copy()
        self._keep(packet.fields, fields, packet.fields[RESUBMIT], InstanceType.RESUBMITTED)
        fields[INGRESS_LENGTH] = packet.fields[INGRESS_LENGTH]
        self._set_length(fields, length)
        return Packet(fields, b"", packet.port)

    def _multicast(self, packet: Packet, group: int, placements: list[Placement]) -> None:
        replicas = self._state.multicast_groups.get(group, ())
        if not replicas:
            self._drop("multicast_group_empty")
        packet.fields[self._instance_type] = InstanceType.REPLICATION
        self._replicate(packet, replicas, self._queue_of(packet.fields), placements)

    # ---- egress

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        """Run egress and deparse; a recirculated packet goes through ingress at once and comes back as placements."""
        self._moment.now_us = now_us
        result = EgressResult()
        for dequeued in packets:
            packet: Packet = dequeued.packet
            self._prepare_egress(packet.fields, dequeued, now_us)
            try:
                self._run_egress(packet, dequeued.port, result)
            except PacketFault as fault:
                self._drop(fault.reason)
        return result

    def _prepare_egress(self, fields: Fields, dequeued: Dequeued, now_us: int) -> None:
        self._egress_time(fields, now_us)
        readings = (
            dequeued.enq_timestamp_us,
            dequeued.enq_qdepth,
            dequeued.deq_timedelta_us,
            dequeued.deq_qdepth,
        )
        for store, reading in zip(self._queueing, readings, strict=False):
            store(fields, reading)
        if self._queueing:
            self._queue_id(fields, dequeued.priority)
        fields[self._egress_port] = dequeued.port & _PORT_MASK
        fields[self._egress_spec] = 0  # anything but the drop port
        fields[self._packet_length] = fields[PACKET_LENGTH] & _LENGTH_MASK

    def _run_egress(self, packet: Packet, port: int, result: EgressResult) -> None:
        fields = packet.fields
        self._moment.payload = packet.payload
        self._egress(fields)
        if fields[CLONE_SESSION]:
            self._clone_egress(packet, result.placements)
        if fields[self._egress_spec] == DROP_PORT:
            self._drop("egress_drop")
            return
        data = self._deparse(fields, packet.payload)
        if fields[RECIRCULATE]:  # whole: truncation applies only to the packet that requested it, as in bmv2
            self._recirculate(packet, data, result.placements)
        else:
            result.outputs.append(Output(port, data[: fields[TRUNCATE]]))

    def _recirculate(self, packet: Packet, data: bytes, placements: list[Placement]) -> None:
        fields = self._layout.template.copy()
        self._keep(packet.fields, fields, packet.fields[RECIRCULATE], InstanceType.RECIRCULATED)
        self._set_length(fields, len(data))
        fields[INGRESS_LENGTH] = len(data)
        self._enter(Packet(fields, b"", packet.port), data, placements)

    # ---- clones and copies

    def _keep(self, source: Fields, target: Fields, field_list: int, instance_type: InstanceType) -> None:
        """Reset a copy's metadata, except for the fields of a list."""
        reset_metadata(target, self._layout)
        for slot in self._lists.get(field_list, ()):
            target[slot] = source[slot]
        target[self._instance_type] = instance_type

    def _session(self, fields: Fields) -> CloneSession | None:
        session = self._state.clone_sessions.get(fields[CLONE_SESSION] & ~SESSION_VALID)
        if session is None:
            self._drop("clone_session_unknown")
        return session

    def _clone_ingress(self, packet: Packet, data: bytes, placements: list[Placement]) -> None:
        """Queue copies of the packet as it came in; they are parsed again, since ingress has changed the headers."""
        session = self._session(packet.fields)
        if session is not None:
            fields = self._layout.template.copy()
            fields[self._ingress_port] = packet.port & _PORT_MASK
            parsed, _ = self._parse(fields, data)
            self._keep(packet.fields, fields, packet.fields[CLONE_LIST], InstanceType.INGRESS_CLONE)
            fields[PER_PACKET] = self._layout.template[PER_PACKET]
            fields[PACKET_LENGTH], fields[INGRESS_LENGTH] = len(data), packet.fields[INGRESS_LENGTH]
            self._send_clone(Packet(fields, data[parsed:], packet.port), parsed, session, placements)
        packet.fields[CLONE_SESSION] = packet.fields[CLONE_LIST] = 0

    def _clone_egress(self, packet: Packet, placements: list[Placement]) -> None:
        """Queue copies of the packet as it is at the end of egress, with all headers."""
        session = self._session(packet.fields)
        if session is not None:
            fields = packet.fields.copy()
            self._keep(packet.fields, fields, packet.fields[CLONE_LIST], InstanceType.EGRESS_CLONE)
            fields[PER_PACKET] = self._layout.template[PER_PACKET]
            clone = Packet(fields, packet.payload, packet.port)
            self._send_clone(clone, self._emitted_bytes(fields), session, placements)
        packet.fields[CLONE_SESSION] = packet.fields[CLONE_LIST] = 0

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return placements for a packet that a queue refused: it goes to a clone session's ports instead."""
        packet: Packet = refused.packet
        placements: list[Placement] = []
        config = self._state.clone_sessions.get(session)
        if config is not None and packet.fields[self._instance_type] in ORIGINALS:
            packet.fields[self._instance_type] = InstanceType.DEFLECTED
            self._send_clone(packet, self._emitted_bytes(packet.fields), config, placements)
        return placements

    def _send_clone(self, clone: Packet, headers: int, session: CloneSession, placements: list[Placement]) -> None:
        """Truncate a clone to its session's length and queue it for every replica.

        The length counts from the packet's first byte at the moment of cloning, so that egress may add to it; headers
        already parsed are only truncated when the packet leaves.
        """
        limit, fields = session.packet_length_bytes, clone.fields
        if 0 < limit < headers + len(clone.payload):
            clone.payload = clone.payload[: max(0, limit - headers)]
            fields[PACKET_LENGTH] = limit
            if limit < headers:
                fields[TRUNCATE] = limit
        self._replicate(clone, session.replicas, session.class_of_service, placements, limit=fields[TRUNCATE])

    def _replicate(
        self,
        packet: Packet,
        replicas: Sequence[Replica],
        priority: int,
        placements: list[Placement],
        *,
        limit: int | None = None,
    ) -> None:
        for replica in replicas:
            fields = packet.fields.copy()
            fields[PER_PACKET] = self._layout.template[PER_PACKET]
            if limit is not None:
                fields[TRUNCATE] = limit
            self._replica_id(fields, replica.instance)
            self._place(Packet(fields, packet.payload, packet.port), replica.port, priority, placements)

    def _queue_of(self, fields: Fields) -> int:
        return 0 if self._priority is None else fields[self._priority]

    def _place(self, packet: Packet, port: int, priority: int, placements: list[Placement]) -> None:
        if priority >= PRIORITIES:
            self._drop("priority_out_of_range")
            return
        length = min(packet.fields[PACKET_LENGTH], packet.fields[TRUNCATE])
        placements.append(Placement(packet, port, priority, length))


def _bind_digest(digest: Digest, layout: Layout) -> Callable[[Fields], DigestMessage]:
    """Return a closure that reads the values of a digest, each truncated to its width."""
    name = digest.spec.name
    reads: list[tuple[int | None, int]] = []  # slot and mask, or no slot and the constant itself
    for source, (_, width) in zip(digest.sources, digest.spec.fields, strict=True):
        if isinstance(source, SizedConstant):
            reads.append((None, source.value))
        else:
            reads.append((layout.slot(source), (1 << width) - 1))

    def read(fields: Fields) -> DigestMessage:
        return DigestMessage(name, tuple(mask if slot is None else fields[slot] & mask for slot, mask in reads))

    return read


_PRIORITY = "intrinsic_metadata.priority"
_QUEUEING = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth")
_PORT_MASK = (1 << 9) - 1
_LENGTH_MASK = (1 << 32) - 1
