"""Table entries: immutable, so that a packet sees the old or the new one, around a counter and meter that live on."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Self

from dataplane.program.objects import ActionCall
from dataplane.switch.tables.match import Match
from dataplane.switch.tables.meters import MeterCell, MeterConfig

WORD_MASK = (1 << 64) - 1


class Tally(array):  # type: ignore[type-arg]  # array is generic for type checkers only
    """Packets and bytes counted so far, modulo 2^64, and the time of the last packet.

    Three adjacent words in memory (`dataplane.switch.abi.Tally`), so that compiled code can count in it, too.
    """

    __slots__ = ()

    def __new__(cls, packets: int = 0, nbytes: int = 0, last_hit_us: int = 0) -> Self:
        """Make a tally with its own memory."""
        return super().__new__(cls, "Q", (packets, nbytes, last_hit_us))  # type: ignore[return-value]  # typeshed

    @property
    def packets(self) -> int:
        """Packets counted."""
        return self[0]  # type: ignore[no-any-return]  # a word

    @packets.setter
    def packets(self, value: int) -> None:
        self[0] = value & WORD_MASK

    @property
    def bytes(self) -> int:
        """Bytes of those packets."""
        return self[1]  # type: ignore[no-any-return]  # a word

    @bytes.setter  # noqa: A003 (the property)
    def bytes(self, value: int) -> None:
        self[1] = value & WORD_MASK

    @property
    def last_hit_us(self) -> int:
        """Time of the last packet, in microseconds on the switch's clock."""
        return self[2]  # type: ignore[no-any-return]  # a word

    @last_hit_us.setter
    def last_hit_us(self, value: int) -> None:
        self[2] = value

    @property
    def address(self) -> int:
        """Address of the words; valid while this object lives."""
        return self.buffer_info()[0]


Compact = tuple[str, tuple[int, ...], Tally | None]
"""An entry of many that were inserted together: its action's name and arguments, and its tally."""


@dataclass(frozen=True, slots=True)
class WeightedAction:
    """An action that takes `weight` consecutive places in a hash range, while its watched port is up."""

    call: ActionCall
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True, slots=True)
class ActionSet:
    """Actions that share traffic by hash, in order: a group's members, or a one-shot action set."""

    actions: tuple[WeightedAction, ...]
    _ends: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple(accumulate(action.weight for action in self.actions)))

    def pick(self, hash_value: int) -> ActionCall | None:
        """Return the action at place `hash_value` modulo the sum of weights; None if there are none."""
        if not self._ends:
            return None
        return self.actions[bisect_right(self._ends, hash_value % self._ends[-1])].call

    def without(self, down: AbstractSet[int]) -> ActionSet:
        """Return the set without the actions that watch one of the ports `down`; itself if none does."""
        if all(action.watch_port not in down for action in self.actions):
            return self
        return ActionSet(tuple(action for action in self.actions if action.watch_port not in down))


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The action on packets that satisfy `match`: exactly one of call, member, group and action_set.

    A larger `priority` wins; tables whose keys cannot overlap have 0. `is_const` entries come with the program and
    stay. The default entry has an empty match and applies to what matches no other. `metadata` and `cookie` belong to
    the controller and mean nothing to the switch. The table gives an entry the `tally` and the `meter_cell` that it
    needs, and hands them on to the entry that replaces it.
    """

    match: Match
    priority: int = 0
    call: ActionCall | None = None
    member: int | None = None
    group: int | None = None
    action_set: ActionSet | None = None
    metadata: bytes = b""
    cookie: int = 0
    is_const: bool = False
    idle_timeout_ns: int = 0
    is_default: bool = False
    tally: Tally | None = field(default=None, compare=False)
    meter_cell: MeterCell | None = field(default=None, compare=False)

    @property
    def packets(self) -> int:
        """Packets that hit this entry."""
        return 0 if self.tally is None else self.tally.packets

    @property
    def bytes(self) -> int:
        """Bytes of the packets that hit this entry."""
        return 0 if self.tally is None else self.tally.bytes

    @property
    def last_hit_us(self) -> int:
        """Time of the last hit, in microseconds on the switch's clock; 0 before the first `touch`."""
        return 0 if self.tally is None else self.tally.last_hit_us

    @property
    def meter_config(self) -> MeterConfig | None:
        """The direct meter's configuration; None if there is no meter, or it lets everything pass."""
        return None if self.meter_cell is None else self.meter_cell.config

    def count(self, nbytes: int) -> None:
        """Count one packet of `nbytes` bytes (direct counter)."""
        tally = self.own_tally()
        tally.packets += 1
        tally.bytes += nbytes

    def touch(self, now_us: int) -> None:
        """Record that a packet hit the entry (idle timeout)."""
        self.own_tally().last_hit_us = now_us

    def meter(self, nbytes: int, now_us: int) -> int:
        """Charge a packet to the direct meter; return its colour, 0 green, 1 yellow, 2 red."""
        return 0 if self.meter_cell is None else self.meter_cell.execute(nbytes, now_us)

    def own_tally(self) -> Tally:
        """Return the entry's tally; tables without counter assign none, so that a million entries stay small."""
        if self.tally is None:
            object.__setattr__(self, "tally", Tally())
            assert self.tally is not None
        return self.tally


def unpacked(match: Match, priority: int, compact: Compact) -> TableEntry:
    """Return a compact entry as what it stands for."""
    action, arguments, tally = compact
    return TableEntry(match, priority, ActionCall(action, arguments), tally=tally)
