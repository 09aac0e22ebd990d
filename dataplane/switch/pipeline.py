"""The seam between a switch and what executes its P4 program: bursts in, bursts out, tables shared.

A pipeline (the reference interpreter; later, compiled code) parses and runs ingress, hands packets to the traffic
manager as opaque handles, and runs egress and deparses them when the traffic manager hands them back. Between the
two, only what this file names crosses. Times are microseconds on the switch's clock, as bmv2's metadata has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from dataplane.program.model import Program
from dataplane.switch.tables import ForwardingState


@dataclass(slots=True)
class Frame:
    """A frame as it came in on a port; never longer than what the port accepts."""

    port: int
    data: bytes


@dataclass(slots=True)
class Placement:
    """What ingress (or a clone, or a replica) wants queued: an opaque packet for one output port and priority."""

    packet: Any
    port: int
    priority: int
    length_bytes: int
    refused_depth: int = 0
    """What waited in the full queue that this packet was deflected from; 0: it was not."""


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
    """What egress made of a burst: frames to send, and packets to queue (egress clones, recirculated ones)."""

    outputs: list[Output] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DigestMessage:
    """One message of a digest: its values in the order of the digest's fields."""

    digest: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PreparedProgram:
    """A program that is ready to run over its own fresh state; `executable` means something to its switch only."""

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
        """Parse and run ingress; return what is to be queued, clones and replicas included, in bmv2's order."""
        ...

    def egress(self, packets: Sequence[Dequeued], now_us: int) -> EgressResult:
        """Run egress and deparse; a recirculated packet goes through ingress at once and comes back as placements."""
        ...

    def deflect(self, refused: Placement, session: int) -> list[Placement]:
        """Return what is to be queued of what a queue had no room for: it goes to a clone session's ports instead.

        The packet keeps all headers and metadata, its instance type says DEFLECTED. Empty where it is a copy itself, or
        where there is no such session.
        """
        ...

    def take_digests(self) -> list[DigestMessage]:
        """Return the digests sent since the last call, oldest first; a full queue drops and counts the newest."""
        ...
