"""The interpreter that records its work: the program's by closures, the switch's by methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataplane.program.model import Program
from dataplane.program.operations import FieldRef
from dataplane.switch.interpreter import InterpretedPipeline
from dataplane.switch.interpreter.layout import (
    CLONE_SESSION,
    DIGEST,
    RECIRCULATE,
    RESUBMIT,
    SESSION_VALID,
    Fields,
)
from dataplane.switch.interpreter.pipeline import Packet
from dataplane.switch.interpreter.state import PipelineState
from dataplane.switch.pipeline import Dequeued, EgressResult, Frame, Placement
from dataplane.switch.random_numbers import SplitMix
from dataplane.switch.tables import CloneSession, Replica
from dataplane.switch.tracing.recorder import Recorder
from dataplane.switch.tracing.statements import CLONE, PORT
from dataplane.switch.tracing.statements import DIGEST as DIGEST_REQUEST
from dataplane.switch.tracing.steps import (
    Cloned,
    Deparsed,
    DigestSent,
    Dropped,
    Multicast,
    PacketTrace,
    ParserDone,
    Passage,
    Queued,
    QueueReading,
    Recirculated,
    Resubmitted,
    Sent,
    Step,
    Value,
)
from dataplane.switch.v1model import InstanceType

MOST_TRACES = 4_096
"""Maximum traces waiting for `take`; a newer one evicts the oldest."""

_OF_THE_SWITCH = {
    "ingress_drop": PORT,
    "egress_drop": PORT,
    "clone_session_unknown": CLONE,
    "digest_queue_full": DIGEST_REQUEST,
    "multicast_group_empty": "",
    "priority_out_of_range": "",
    "resubmit_limit": "",
}
"""Reasons found by the switch, with the request that caused each; all others are faults of a statement."""
_CAUSES = {InstanceType.RESUBMITTED: "resubmitted", InstanceType.RECIRCULATED: "recirculated"}


@dataclass(slots=True)
class TracedPacket(Packet):
    """A packet with its trace, and its copy number there."""

    trace: PacketTrace
    copy: int


class TracedPipeline(InterpretedPipeline):
    """The interpreter, with a `PacketTrace` of every incoming frame: complete once its copies have left.

    `frames_received` counts them. `exact` False means that counters, registers, meters and random numbers may have
    differed for the packet itself.
    """

    def __init__(self, program: Program, state: PipelineState, *, rng: SplitMix, exact: bool = True) -> None:
        self._recorder = recorder = Recorder(program, state, exact=exact)
        super().__init__(program, state, rng=rng, tracer=recorder)
        self._parse_untold, self._parse = self._parse, self._traced_parse
        self._deparse_untold, self._deparse = self._deparse, self._traced_deparse
        self._traces: list[PacketTrace] = []
        self.frames_received = 0
        self._trace = PacketTrace(0, program.name, 0, 0, b"")
        self._copy = 0
        self._cloning = self._replicating = False

    def take(self) -> list[PacketTrace]:
        """Return the traces since the last call, oldest first; copies still waiting are added to them later."""
        traces, self._traces = self._traces, []
        return traces

    def _tell(self, step: Step) -> None:
        self._recorder.steps.append(step)

    def _begin(self, pipeline: str, cause: str, queue: QueueReading | None = None) -> None:
        passage = Passage(self._copy, pipeline, cause, queue)
        self._trace.passages.append(passage)
        self._recorder.steps = passage.steps
        self._recorder.last_source = None
        self._recorder.causes.clear()

    # ---- ingress

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        """Parse and run ingress, with a new trace for each frame."""
        placements: list[Placement] = []
        for frame in frames:
            self.frames_received += 1
            self._copy = 0
            self._trace = PacketTrace(self.frames_received, self._program.name, frame.port, now_us, frame.data)
            self._traces.append(self._trace)
            del self._traces[:-MOST_TRACES]
            placements += super().ingress([frame], now_us)
        return placements

    def _run_ingress(self, packet: Packet, data: bytes, placements: list[Placement]) -> Packet | None:
        kind = InstanceType(packet.fields[self._instance_type])
        self._begin("ingress", _CAUSES.get(kind, "received"))
        return super()._run_ingress(packet, data, placements)

    def _traced_parse(self, fields: Fields, data: bytes) -> tuple[int, int]:
        if self._cloning:
            with self._recorder.muted():
                return self._parse_untold(fields, data)
        parsed, error = self._parse_untold(fields, data)
        self._tell(ParserDone(parsed, self._error_names.get(error, str(error))))
        return parsed, error

    def _drop(self, reason: str) -> None:
        super()._drop(reason)
        recorder = self._recorder
        source = recorder.causes.get(_OF_THE_SWITCH[reason]) if reason in _OF_THE_SWITCH else recorder.last_source
        self._tell(Dropped(reason, source))

    def _send_digest(self, fields: Fields) -> None:
        super()._send_digest(fields)
        message = self._digests[fields[DIGEST] - 1](fields)
        spec = next(digest.spec for digest in self._program.digests.values() if digest.spec.name == message.digest)
        named = zip(spec.fields, message.values, strict=True)
        self._tell(DigestSent(message.digest, tuple(Value(name, width, value) for (name, width), value in named)))

    def _resubmitted(self, packet: Packet, length: int) -> Packet:
        self._tell(Resubmitted(self._kept(packet.fields, packet.fields[RESUBMIT])))
        return super()._resubmitted(packet, length)

    def _kept(self, fields: Fields, number: int) -> tuple[Value, ...]:
        return tuple(self._value(fields, ref) for ref in self._program.field_lists.get(number, ()))

    def _value(self, fields: Fields, ref: FieldRef) -> Value:
        return Value(f"{ref.header}.{ref.field}", self._layout.spec(ref).width_bits, fields[self._layout.slot(ref)])

    def _multicast(self, packet: Packet, group: int, placements: list[Placement]) -> None:
        ports = tuple(replica.port for replica in self._state.multicast_groups.get(group, ()))
        self._tell(Multicast(group, ports))
        super()._multicast(packet, group, placements)

    # ---- egress

    def _prepare_egress(self, fields: Fields, dequeued: Dequeued, now_us: int) -> None:
        packet = dequeued.packet
        self._trace, self._copy = packet.trace, packet.copy
        reading = QueueReading(
            dequeued.port, dequeued.priority, dequeued.enq_qdepth, dequeued.deq_qdepth, dequeued.deq_timedelta_us
        )
        self._begin("egress", "queued", reading)
        super()._prepare_egress(fields, dequeued, now_us)

    def _run_egress(self, packet: Packet, port: int, result: EgressResult) -> None:
        before = len(result.outputs)
        super()._run_egress(packet, port, result)
        for output in result.outputs[before:]:
            self._tell(Sent(output.port, len(output.data), output.data))

    def _traced_deparse(self, fields: Fields, payload: bytes) -> bytes:
        data = self._deparse_untold(fields, payload)
        self._tell(Deparsed(self._recorder.headers(fields, self._program.deparser.order), len(payload)))
        return data

    def _recirculate(self, packet: Packet, data: bytes, placements: list[Placement]) -> None:
        self._tell(Recirculated(len(data), self._kept(packet.fields, packet.fields[RECIRCULATE])))
        super()._recirculate(packet, data, placements)

    # ---- clones and copies

    def _session(self, fields: Fields) -> CloneSession | None:
        number = fields[CLONE_SESSION] & ~SESSION_VALID
        session = self._state.clone_sessions.get(number)
        ports = () if session is None else tuple(replica.port for replica in session.replicas)
        longest = (session.packet_length_bytes or None) if session is not None else None
        self._tell(Cloned(number, session is not None, ports, longest))
        return super()._session(fields)

    def _clone_ingress(self, packet: Packet, data: bytes, placements: list[Placement]) -> None:
        self._cloning = True
        try:
            super()._clone_ingress(packet, data, placements)
        finally:
            self._cloning = False

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return placements for a packet that a queue refused, recorded in the packet's trace."""
        packet: TracedPacket = refused.packet
        self._trace, self._copy = packet.trace, packet.copy
        self._begin("queue", "deflected")
        return super().deflect(refused, session)

    def _replicate(
        self,
        packet: Packet,
        replicas: Sequence[Replica],
        priority: int,
        placements: list[Placement],
        *,
        limit: int | None = None,
    ) -> None:
        self._replicating = True
        super()._replicate(packet, replicas, priority, placements, limit=limit)
        self._replicating = False

    def _place(self, packet: Packet, port: int, priority: int, placements: list[Placement]) -> None:
        before, copy = len(placements), self._copy
        if self._replicating:
            self._trace.copies += 1
            copy = self._trace.copies
        told = TracedPacket(packet.fields, packet.payload, packet.port, self._trace, copy)
        super()._place(told, port, priority, placements)
        for placement in placements[before:]:
            self._tell(Queued(copy, port, priority, placement.length_bytes))
