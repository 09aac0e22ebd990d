"""Statements of p4c's simple test framework (STF), one value each.

The grammar is that of p4c's `tools/stf` with the commands that its bmv2 runner adds (`backends/bmv2/bmv2stf.py`). Names
are as written: a table, action or key field may be named by the end of its full name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

# ---- numbers and matches


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written: `mask` has the bits of its digits, 0 for a digit `*`; a decimal number has no mask."""

    value: int
    mask: int | None = None
    bits: int = 0

    @property
    def has_wildcards(self) -> bool:
        """Return whether any digit is `*`."""
        return self.mask is not None and self.mask != (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Prefix:
    """`VALUE/LENGTH`."""

    value: int
    length: int


@dataclass(frozen=True, slots=True)
class Masked:
    """`VALUE&&&MASK`."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Span:
    """`LOW->HIGH`, both included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Anything:
    """`*`: a field that is ignored."""


Pattern: TypeAlias = Number | Prefix | Masked | Span | Anything


@dataclass(frozen=True, slots=True)
class Call:
    """An action with its arguments by name."""

    action: str
    arguments: tuple[tuple[str, int], ...]


# ---- packets


@dataclass(frozen=True, slots=True)
class Packet:
    """A frame comes in at a port."""

    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Expect:
    """A frame leaves a port: `digits` are its first hex digits, `*` for any; None for any frame at all.

    With `exact` it has no more than that.
    """

    port: int
    digits: str | None
    exact: bool


@dataclass(frozen=True, slots=True)
class NoPacket:
    """The preceding packet sends nothing out of any port."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""


# ---- tables


@dataclass(frozen=True, slots=True)
class Add:
    """Add a table entry; of two that match, the one with the larger `priority` wins. `label` names it for checks."""

    table: str
    priority: int | None
    matches: tuple[tuple[str, Pattern], ...]
    call: Call
    label: str | None


@dataclass(frozen=True, slots=True)
class RemoveAll:
    """Remove the entries of every table, except those that the program itself declares const."""


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Set a table's default action."""

    table: str
    call: Call


# ---- counters, registers, meters


class CountUnit(StrEnum):
    """Property of a counter that is compared."""

    PACKETS = "packets"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class CheckCounter:
    """Compare a counter, at an index or of a labelled entry; without `comparison` it only has to exist."""

    counter: str
    place: int | str
    comparison: tuple[CountUnit, str, int] | None


@dataclass(frozen=True, slots=True)
class CounterRead:
    """Show a counter."""

    counter: str
    index: int


@dataclass(frozen=True, slots=True)
class CounterWrite:
    """Set a counter."""

    counter: str
    index: int
    packets: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class RegisterRead:
    """Show a register cell."""

    register: str
    index: int


@dataclass(frozen=True, slots=True)
class RegisterWrite:
    """Set a register cell."""

    register: str
    index: int
    value: int


@dataclass(frozen=True, slots=True)
class RegisterReset:
    """Set all cells of a register to zero."""

    register: str


@dataclass(frozen=True, slots=True)
class Rate:
    """A meter's rate, in units per microsecond, and its burst in units."""

    per_us: float
    burst: int


@dataclass(frozen=True, slots=True)
class MeterGet:
    """Show a meter cell's rates."""

    meter: str
    index: int


@dataclass(frozen=True, slots=True)
class MeterSet:
    """Set the committed and the peak rate of a meter cell, or of all cells if `index` is None."""

    meter: str
    index: int | None
    rates: tuple[Rate, Rate]


# ---- copies


@dataclass(frozen=True, slots=True)
class GroupCreate:
    """Make an empty multicast group."""

    group: int


@dataclass(frozen=True, slots=True)
class NodeCreate:
    """Make the next multicast node (they count from 0): a replication id and the ports that it copies to."""

    replication_id: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """Change the ports of a node."""

    node: int
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeAssociate:
    """Put a node into a group."""

    group: int
    node: int


@dataclass(frozen=True, slots=True)
class Mirror:
    """Send clones of a session to a port, or to a multicast group."""

    session: int
    port: int | None = None
    group: int | None = None


@dataclass(frozen=True, slots=True)
class MirrorDelete:
    """Delete a clone session."""

    session: int


@dataclass(frozen=True, slots=True)
class MirrorGet:
    """Show a clone session."""

    session: int


Command: TypeAlias = (
    Packet
    | Expect
    | NoPacket
    | Wait
    | Add
    | RemoveAll
    | SetDefault
    | CheckCounter
    | CounterRead
    | CounterWrite
    | RegisterRead
    | RegisterWrite
    | RegisterReset
    | MeterGet
    | MeterSet
    | GroupCreate
    | NodeCreate
    | NodeUpdate
    | NodeAssociate
    | Mirror
    | MirrorDelete
    | MirrorGet
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A command and its line number, counted from 1."""

    line: int
    command: Command
