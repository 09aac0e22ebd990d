"""The protocol of owners of switches' tables, through which alone the coordinator and its drivers know owners.

An owner declares the entities that only it writes (`owns`), what a switch is to hold (`wanted`) and what to write next:
at one switch, as soon as it is known (`next_batches`), or over several, in a safe order (`plan`). It is notified of
what was found in a switch, acknowledged or refused, and when a switch is lost. All of it is level triggered: the next
write follows from the desired and the current state, whatever happened in between. No session and no clock in here.

`TableOwner` does all of it for an owner whose tables need only match what is wanted. `StagedOwner` and
`ListeningOwner` are extensions: changes that all switches make in stages, and decisions by what switches count and
learn.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum

from controller.network.owners.steps import NO_STEPS, UpdatePlan
from controller.network.p4runtime.session import Bundling, Learned
from controller.network.reconcile import diff, is_reset
from controller.network.tables.base import FILL_ORDER
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Update, Verb, same
from dataplane.topology.values import LinkKey

LOGGER = logging.getLogger("millrace.controller")


class Verdict(IntEnum):
    """Consequence of a refusal, in ascending severity: of several owners' verdicts the most severe applies."""

    DONE = 0
    """Acceptable as it is: continue as if the updates were acknowledged."""
    LEFT = 1
    """The owner drops them for now, and does not retry until something happens: the rest continues."""
    SPARED = 2
    """The owner drops or reverts them: the switch is read again, and the rest continues."""
    INSISTS = 3
    """A switch without it cannot be used."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Updates of one owner that a switch refused; `code` is gRPC's, `problem` the error line."""

    switch: str
    updates: tuple[Update, ...]
    code: str | None
    problem: str


@dataclass(frozen=True, slots=True)
class Known:
    """Known state of all switches: what each holds, absent for one never read, and which are read and can be written.

    Both change while an owner has it; each switch's entities are a new object whenever they change.
    """

    held: Mapping[str, Entities]
    live: Set[str]


class Owner(ABC):
    """Owns tables of every switch of a fabric, or some of their entries."""

    name: str
    """Name in logs and errors."""
    fill_order: tuple[str, ...] = ()
    """Its tables in the order of filling, unless they are among those of the fabric's program."""

    @abstractmethod
    def owns(self, key: EntityKey) -> bool:
        """Return whether this owner alone writes an entity. Each key has exactly one owner, or is wanted nowhere."""

    @abstractmethod
    def wanted(self, switch: str) -> Entities:
        """Return what a switch is to hold when all is as it should be, also what others own and this leans on."""

    def samples(self, switch: str) -> Iterable[Entity]:
        """Return entities of every kind that the switch's program must have a place for."""
        return self.wanted(switch).values()

    def installed(self, switch: str) -> None:
        """Note that a switch has just received its program and holds nothing."""

    def found(self, switch: str, actual: Entities) -> None:
        """Note what was read from a switch, before any other call about it."""

    def restored(self, switch: str, actual: Entities, known: Known) -> Entities:
        """Return what a switch that was just read is to hold immediately: of what is owned, the rest is removed.

        `known` still has the previous belief about it.
        """
        return self.wanted(switch)

    def next_batches(self, switch: str, known: Known) -> list[Batch]:
        """Return what to write to one switch now, each batch when the previous one is acknowledged; called until empty.

        Registers are written this way, too: they are acknowledged, and never read back.
        """
        return []

    def plan(self, known: Known) -> UpdatePlan:
        """Return what to write in steps over several switches, given what each holds."""
        return NO_STEPS

    def acknowledged(self, switch: str, updates: Sequence[Update]) -> None:
        """Note that updates, this owner's or others', took effect."""

    def confirmed(self, switch: str, held: Entities) -> None:
        """Note that a switch, which holds this, has acknowledged everything from `restored` and `next_batches`."""

    def refused(self, refusal: Refusal) -> Verdict:
        """Note that a switch refused updates of what is owned, and return the consequence."""
        return Verdict.INSISTS

    def forgive(self) -> None:
        """Let what was refused be tried again: a switch has returned, possibly with room or another program."""

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that its contents are unknown."""

    def avoid(self, down: Set[LinkKey]) -> None:
        """Keep off dead links from now on."""


class StagedOwner(Owner):
    """An owner whose changes go through stages, each of which all switches reach before the next one begins."""

    number: int
    """Grows with each stage: then all switches are to be read and reconciled again, or a pause is due."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """Stage of the change, for the log."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Return whether every switch has confirmed what is wanted."""

    @property
    @abstractmethod
    def pause_ns(self) -> int | None:
        """Time for which nothing may change in this stage; None if switches must be reconciled for it."""

    @abstractmethod
    def paused(self, number: int) -> None:
        """Note that the pause of stage `number` is over."""


class ListeningOwner(Owner):
    """An owner that decides by what switches count and learn; a switch that cannot report is left as it is."""

    interval_ns: int
    """Interval at which counters are read."""
    digests: Mapping[str, Bundling]
    """The program's digests, and how they are bundled."""

    @abstractmethod
    def counter(self, switch: str) -> str | None:
        """Return the direct counter to read at a switch, None if it would show nothing."""

    @abstractmethod
    def counted(self, switch: str, packets: Mapping[EntityKey, int], now_ns: int) -> None:
        """Take what a switch has counted: first when it was read and right otherwise, then after each interval."""

    @abstractmethod
    def learned(self, switch: str, learned: Learned, now_ns: int) -> None:
        """Take a digest of a switch."""

    def unheard(self, switch: str, problem: str) -> None:
        """Note that a switch's counters or digests are not to be had now; they are asked for again."""


MAX_STRIKES = 2
"""One refusal may come from a wrong belief about what the switch holds, which reading it again mends."""


class Strikes:
    """Number of times that each entity was refused, on any switch."""

    def __init__(self) -> None:
        self._counts: dict[EntityKey, int] = {}

    def note(self, updates: Iterable[Update]) -> None:
        """Note that a switch refused updates."""
        for update in updates:
            self._counts[update.key] = self._counts.get(update.key, 0) + 1

    def clear(self) -> None:
        """Start again from nothing."""
        self._counts.clear()

    @property
    def refused(self) -> Set[EntityKey]:
        """Refused entities: each is left out when a switch is read, and may be tried once more after that."""
        return self._counts.keys()

    @property
    def refused_twice(self) -> frozenset[EntityKey]:
        """Entities that were refused twice."""
        return frozenset(key for key, count in self._counts.items() if count >= MAX_STRIKES)


def own_part(owner: Owner, wanted: Entities, held: Entities) -> Entities:
    """Return what a switch holds of what an owner owns or wants."""
    return {key: entity for key, entity in held.items() if key in wanted or owner.owns(key)}


def own_batches(owner: Owner, wanted: Entities, held: Entities) -> list[Batch]:
    """Return the updates that take an owner's part of a switch from `held` to what is wanted."""
    return diff(wanted, own_part(owner, wanted, held), order=(*FILL_ORDER, *owner.fill_order))


class TableOwner(Owner):
    """Owns whole tables, in which each switch gets what is wanted as soon as it is known; a subclass defines that.

    Entities that a switch refuses twice are left as they are there, until something else is wanted or a switch returns.
    """

    tables: frozenset[str]
    """Names of the tables."""

    def __init__(self) -> None:
        self._strikes: dict[str, dict[EntityKey, tuple[Entity | None, int]]] = {}

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is of one of the tables."""
        return key.table in self.tables

    def restored(self, switch: str, actual: Entities, known: Known) -> Entities:
        """Return what is wanted; what was refused stays as it was found."""
        return self._allowed(switch, actual, 1)

    def next_batches(self, switch: str, known: Known) -> list[Batch]:
        """Return the difference, without what was refused twice."""
        held = known.held.get(switch, {})
        return own_batches(self, self._allowed(switch, held, MAX_STRIKES), held)

    def refused(self, refusal: Refusal) -> Verdict:
        """Do without what was refused twice."""
        LOGGER.warning("%s: %s", self.name, refusal.problem)
        strikes = self._strikes.setdefault(refusal.switch, {})
        for update in refusal.updates:
            goal = None if update.verb is Verb.DELETE or is_reset(update.entity) else update.entity
            before, count = strikes.get(update.key, (goal, 0))
            strikes[update.key] = (goal, count + 1 if _agree(before, goal) else 1)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self._strikes.clear()

    def _allowed(self, switch: str, held: Entities, strikes: int) -> Entities:
        """Return what is wanted, with entities that were refused too often as they are held."""
        wanted, refused = self.wanted(switch), self._strikes.get(switch)
        if not refused:
            return wanted
        stuck = {key for key, (goal, count) in refused.items() if count >= strikes and _agree(goal, wanted.get(key))}
        kept = {key: held[key] for key in stuck if key in held}
        return {**{key: entity for key, entity in wanted.items() if key not in stuck}, **kept}


def _agree(left: Entity | None, right: Entity | None) -> bool:
    """Return whether two goals of one key are the same; None: that it is not there."""
    if left is None or right is None:
        return left is right
    return same(left, right)
