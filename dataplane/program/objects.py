"""The objects of a compiled program that tables and P4Runtime share: tables, actions, profiles, counters, registers.

Names are the fully qualified ones that bmv2 JSON and P4Info agree on (`FabricIngress.ipv4_routes`). The executable part
(parsers, expressions, pipelines) is `dataplane.program.model`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MatchKind(StrEnum):
    """Match kind of a key field, in bmv2's terms."""

    EXACT = "exact"
    LPM = "lpm"
    TERNARY = "ternary"
    RANGE = "range"
    OPTIONAL = "optional"


PRIORITIZED = frozenset({MatchKind.TERNARY, MatchKind.RANGE, MatchKind.OPTIONAL})
"""The kinds of key fields whose tables' entries have priorities."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """An action by name, with its run-time parameters' names and widths in bits."""

    name: str
    parameters: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class KeyField:
    """One field of a table's key; `width` in bits."""

    name: str
    kind: MatchKind
    width: int


@dataclass(frozen=True, slots=True)
class ActionCall:
    """An action with its arguments, in parameter order."""

    action: str
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PresetEntry:
    """An entry that the program itself contains; values as `dataplane.switch.tables` stores them, one per key field.

    exact: value; lpm: (value, prefix length); ternary: (value, mask); range: (low, high); optional: value or None.
    A larger `priority` wins, as in P4Runtime. One that `is_const` can be neither changed nor removed.
    """

    match: tuple[int | tuple[int, int] | None, ...]
    priority: int
    call: ActionCall
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A match-action table as the program declares it; one that `is_const` has its presets and no other entry.

    If `default` is None, a packet that matches nothing runs no action.
    """

    name: str
    keys: tuple[KeyField, ...]
    actions: tuple[str, ...]
    default: ActionCall | None
    const_default: bool
    size: int
    profile: str | None = None
    direct_counter: str | None = None
    direct_meter: str | None = None
    idle_timeout: bool = False
    presets: tuple[PresetEntry, ...] = ()
    is_const: bool = False


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """An action profile; with `selector` it also has groups, chosen by hash."""

    name: str
    size: int
    max_group_size: int
    selector: bool


@dataclass(frozen=True, slots=True)
class CounterSpec:
    """An indirect counter array (packets and bytes are always both kept)."""

    name: str
    size: int


class MeterUnit(StrEnum):
    """Unit of a meter's rates and bursts, in bmv2's terms."""

    BYTES = "bytes"
    PACKETS = "packets"


@dataclass(frozen=True, slots=True)
class MeterSpec:
    """A meter array of `size` cells, or the direct meter of `table` (then `size` is 0)."""

    name: str
    size: int
    unit: MeterUnit
    table: str | None = None


@dataclass(frozen=True, slots=True)
class DigestSpec:
    """A digest that a program sends to the control plane: field names and widths in bits, in order."""

    name: str
    fields: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ValueSetSpec:
    """A parser value set of at most `size` members, each one value per key field."""

    name: str
    size: int
    keys: tuple[KeyField, ...]


@dataclass(frozen=True, slots=True)
class RegisterSpec:
    """A register array of `size` cells of `width` bits."""

    name: str
    size: int
    width: int
