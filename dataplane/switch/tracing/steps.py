"""Contents of a trace: passages of a packet (or a copy of it) through a pipeline, each with its steps in order.

Every class is a kind of step: `kind` names it in JSON, and its fields are the other keys (docs/network/trace.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from dataplane.program.model import Source


@dataclass(frozen=True, slots=True)
class Value:
    """A named number of that many bits; a signed field's may be negative."""

    name: str
    width_bits: int
    value: int


@dataclass(frozen=True, slots=True)
class Change:
    """A field that a statement has set, changed or not."""

    name: str
    width_bits: int
    before: int
    value: int


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A field of a table's key: the packet's value, and the value of the entry that it hit, if any."""

    name: str
    match_kind: str
    width_bits: int
    value: int
    match: str | None = None


@dataclass(frozen=True, slots=True)
class HeaderValue:
    """A header with its fields; `offset` and `length` are bytes in the frame."""

    name: str
    offset: int
    length: int
    fields: tuple[Value, ...]


# ---- the parser


@dataclass(frozen=True, slots=True)
class StateEntered:
    """The parser is in a state."""

    kind: ClassVar[str] = "state"
    name: str


@dataclass(frozen=True, slots=True)
class Extracted:
    """The parser has extracted a header."""

    kind: ClassVar[str] = "extract"
    header: HeaderValue


@dataclass(frozen=True, slots=True)
class NotExtracted:
    """The parser could not extract a header: `left` bytes of the frame were left, or its length made no sense."""

    kind: ClassVar[str] = "extract_failed"
    header: str
    left: int


@dataclass(frozen=True, slots=True)
class Selected:
    """The parser has chosen the next state; None: it is done."""

    kind: ClassVar[str] = "select"
    key: tuple[Value, ...]
    next_state: str | None


@dataclass(frozen=True, slots=True)
class ParserDone:
    """Parsing has ended after that many bytes; `error` is NoError unless something was wrong."""

    kind: ClassVar[str] = "parsed"
    length: int
    error: str


# ---- checksums


@dataclass(frozen=True, slots=True)
class Verified:
    """A received checksum was compared with its expected value."""

    kind: ClassVar[str] = "verify_checksum"
    name: str
    width_bits: int
    value: int
    computed: int
    holds: bool
    source: Source | None


@dataclass(frozen=True, slots=True)
class Updated:
    """A checksum was recomputed for the outgoing packet."""

    kind: ClassVar[str] = "update_checksum"
    change: Change
    source: Source | None


# ---- the pipelines


@dataclass(frozen=True, slots=True)
class Decided:
    """A condition was evaluated: `within` the parser, a control or an action."""

    kind: ClassVar[str] = "condition"
    within: str
    text: str
    result: bool
    source: Source | None


@dataclass(frozen=True, slots=True)
class TableApplied:
    """A table was looked up; `action` is the one that runs: the entry's, a group's member's, the default, or None.

    `entries` is the number of entries in the table. If nothing was hit, or a group is empty, `hit` is False. `colour`
    is the entry's meter's colour for the packet.
    """

    kind: ClassVar[str] = "table"
    table: str
    key: tuple[KeyPart, ...]
    hit: bool
    entries: int
    priority: int | None
    member: int | None
    group: int | None
    constant: bool
    colour: int | None
    action: str | None
    arguments: tuple[Value, ...]
    source: Source | None


@dataclass(frozen=True, slots=True)
class Called:
    """An action was called outside of tables; None: statements of a control, which the compiler made an action."""

    kind: ClassVar[str] = "call"
    action: str | None
    arguments: tuple[Value, ...]
    source: Source | None


@dataclass(frozen=True, slots=True)
class Ran:
    """A statement was executed: its primitive, the fields that it set, and its use of counters and registers.

    `exact` is False if what it used is shared with other packets and may have differed for the packet itself.
    """

    kind: ClassVar[str] = "statement"
    primitive: str
    text: str
    changes: tuple[Change, ...]
    used: tuple[Value, ...]
    exact: bool
    source: Source | None


# ---- actions of the switch


@dataclass(frozen=True, slots=True)
class DigestSent:
    """A digest went to the control plane."""

    kind: ClassVar[str] = "digest"
    digest: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Cloned:
    """Copies were requested from a clone session; `known` is False if there is no such session."""

    kind: ClassVar[str] = "clone"
    session: int
    known: bool
    ports: tuple[int, ...]
    longest: int | None


@dataclass(frozen=True, slots=True)
class Multicast:
    """The packet is replaced by copies for a multicast group."""

    kind: ClassVar[str] = "multicast"
    group: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """The packet goes through ingress again as it came in, except for the fields that it keeps."""

    kind: ClassVar[str] = "resubmit"
    kept: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Recirculated:
    """The packet goes through ingress again as it would have left, except for the metadata that it keeps."""

    kind: ClassVar[str] = "recirculate"
    length: int
    kept: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Queued:
    """A copy will be queued for a port; copy 0 is the packet itself."""

    kind: ClassVar[str] = "queue"
    copy: int
    port: int
    priority: int
    length: int


@dataclass(frozen=True, slots=True)
class Deparsed:
    """The packet became bytes again: headers, then payload."""

    kind: ClassVar[str] = "deparse"
    headers: tuple[HeaderValue, ...]
    payload_length: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A frame left by a port."""

    kind: ClassVar[str] = "send"
    port: int
    length: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Dropped:
    """A packet, copy or digest ended here; `reason` is the counter's name, `source` the statement that caused it."""

    kind: ClassVar[str] = "drop"
    reason: str
    source: Source | None


Step: TypeAlias = (
    StateEntered
    | Extracted
    | NotExtracted
    | Selected
    | ParserDone
    | Verified
    | Updated
    | Decided
    | TableApplied
    | Called
    | Ran
    | DigestSent
    | Cloned
    | Multicast
    | Resubmitted
    | Recirculated
    | Queued
    | Deparsed
    | Sent
    | Dropped
)


@dataclass(frozen=True, slots=True)
class QueueReading:
    """A copy's queue: frames waiting on its arrival and departure, and its waiting time."""

    port: int
    priority: int
    depth: int
    depth_after: int
    waited_us: int


@dataclass(slots=True)
class Passage:
    """One pass of a copy through ingress or egress, while it is recorded; copy 0 is the packet itself.

    `cause` gives the reason: received, resubmitted, recirculated, or queued, then with the state of the queue. If a
    full queue has refused a packet and it is deflected, `pipeline` is queue.
    """

    copy: int
    pipeline: str
    cause: str
    queue: QueueReading | None = None
    steps: list[Step] = field(default_factory=list)


@dataclass(slots=True)
class PacketTrace:
    """The full trace of a packet that came in by `port` at `time_us` on the switch's clock.

    `copies` is the number of copies made of it; `unknown` tells in words what the trace cannot know exactly, if
    anything.
    """

    number: int
    program: str
    port: int
    time_us: int
    data: bytes
    passages: list[Passage] = field(default_factory=list)
    copies: int = 0
    unknown: tuple[str, ...] = ()

    def steps(self) -> list[Step]:
        """Return all steps in order."""
        return [step for passage in self.passages for step in passage.steps]

    def sent(self) -> list[tuple[int, bytes]]:
        """Return the sent frames with their ports, in order."""
        return [(step.port, step.data) for step in self.steps() if isinstance(step, Sent)]

    def drops(self) -> list[str]:
        """Return the drop reasons, in order."""
        return [step.reason for step in self.steps() if isinstance(step, Dropped)]
