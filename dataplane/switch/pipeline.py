"""The seam between a switch and its P4 program's executor: bursts in, bursts out, tables shared.

A pipeline (the reference interpreter; later, compiled code) parses and runs ingress, hands packets to the traffic
manager as opaque handles, and runs egress and deparses them when the traffic manager hands them back. Only what this
file names passes between the two. Times are microseconds on the switch's clock, as in bmv2's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dataplane.program.model import Program
from dataplane.switch.tables import ForwardingState


@dataclass(slots=True)
class Frame:
    """A frame as received on a port; never longer than the port accepts."""

    port: int
    data: bytes


@dataclass(slots=True)
class Placement:
    """A request to queue an opaque packet (from ingress, a clone, or a replica) for one output port and priority."""

    packet: Any
    port: int
    priority: int
    length_bytes: int
    refused_depth: int = 0
    """Depth of the full queue that this packet was deflected from; 0: not deflected."""


@dataclass(slots=True)
class Dequeued:
    """A packet that leaves its queue, with the readings that v1model calls enq_* and deq_*."""

    packet: Any
    port: int
    priority: int
    enq_timestamp_us: int
    enq_qdepth: int
    deq_timedelta_us: int
    deq_qdepth: int


@dataclass(slots=True)
class Output:
    """A deparsed frame for a port."""

    port: int
    data: bytes


@dataclass(slots=True)
class EgressResult:
    """Egress results of a burst: frames to send, and packets to queue (egress clones, recirculated ones)."""

    outputs: list[Output] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DigestMessage:
    """One message of a digest: its values in the order of the digest's fields."""

    digest: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PreparedProgram:
    """A program ready to run over its own fresh state; only its switch interprets `executable`."""

    program: Program
    state: ForwardingState
    executable: Any = None


class Pipeline(Protocol):
    """A loaded P4 program that executes bursts against a shared `ForwardingState`.

    Never raises on any frame: a packet that cannot continue is dropped and counted in `drops` under a name.
    `parser_errors` counts packets by error, most of which proceed as the program decides.
    """

    @property
    def drops(self) -> Mapping[str, int]:
        """Return packets that ended here, by reason."""
        ...

    @property
    def parser_errors(self) -> Mapping[str, int]:
        """Return packets by the name of their parser error."""
        ...

    def ingress(self, frames: Sequence[Frame], now_us: int) -> list[Placement]:
        """Parse and run ingress; return the packets to queue, clones and replicas included, in bmv2's order."""
        ...

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        """Run egress and deparse; a recirculated packet goes through ingress at once and comes back as placements."""
        ...

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return placements for a packet that a queue refused: it goes to a clone session's ports instead.

        The packet keeps all headers and metadata, its instance type is DEFLECTED. Empty if it is a copy itself, or if
        there is no such session.
        """
        ...

    def take_digests(self) -> list[DigestMessage]:
        """Return the digests sent since the last call, oldest first; a full queue drops and counts the newest."""
        ...
