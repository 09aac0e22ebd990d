"""Table entries: immutable, so that a packet sees either the old or the new one, around one counter that lives on."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate

from dataplane.program.objects import ActionCall
from dataplane.switch.tables.match import Match


@dataclass(slots=True)
class Tally:
    """Packets and bytes counted so far."""

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class WeightedAction:
    """An action that takes `weight` consecutive places in a hash range."""

    call: ActionCall
    weight: int = 1


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


@dataclass(frozen=True, slots=True)
class TableEntry:
    """What a table does with the packets that satisfy `match`: exactly one of call, member, group and action_set.

    A larger `priority` wins; tables whose keys cannot overlap have 0. `is_const` entries come with the program and
    stay. `metadata` and `cookie` are the controller's and mean nothing to the switch.
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
    tally: Tally = field(default_factory=Tally, compare=False)

    @property
    def packets(self) -> int:
        """Packets that hit this entry."""
        return self.tally.packets

    @property
    def bytes(self) -> int:
        """Bytes of the packets that hit this entry."""
        return self.tally.bytes

    def count(self, nbytes: int) -> None:
        """Count one packet of `nbytes` bytes (direct counter)."""
        self.tally.packets += 1
        self.tally.bytes += nbytes
