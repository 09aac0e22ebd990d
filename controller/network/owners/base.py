"""The protocol of owners of switches' tables, the only one by which the coordinator and its drivers know owners.

An owner declares the entities that only it writes (`owns`), a switch's desired state (`wanted`) and what to write next:
at one switch, as soon as it is known (`next_batches`), or over several, in a safe order (`plan`). It is notified of
entities found in a switch, acknowledged or refused, and when a switch is lost. All of it is level triggered: the next
write follows from the desired and the current state, whatever happened in between. There is no session and no clock.

`TableOwner` does all of it for an owner whose tables need only match the desired ones. `StagedOwner` and
`ListeningOwner` are extensions: changes that all switches make in stages, and decisions by switches' counters and
digests.
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
    """The owner drops them for now, and does not retry before a change: the rest continues."""
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
class ObservedState:
    """Known state of all switches: the entities of each, absent for one never read, and the readable and writable ones.

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
        """Return whether only this owner writes an entity. Each key has exactly one owner, or is desired nowhere."""

    @abstractmethod
    def wanted(self, switch: str) -> Entities:
        """Return a switch's desired entities in the final state, including dependencies that others own."""

    def samples(self, switch: str) -> Iterable[Entity]:
        """Return entities of every kind that the switch's program must support."""
        return self.wanted(switch).values()

    def installed(self, switch: str) -> None:
        """Note that a switch has just received its program and holds nothing."""

    def found(self, switch: str, actual: Entities) -> None:
        """Note the entities read from a switch, before any other call about it."""

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return the entities that a switch that was just read may hold immediately; the owner's others are removed.

        `known` still has its previous state.
        """
        return self.wanted(switch)

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
        """Return the batches for one switch now, each sent once the previous one is acknowledged; called until empty.

        Registers are written this way, too: they are acknowledged, and never read back.
        """
        return []

    def plan(self, known: ObservedState) -> UpdatePlan:
        """Return the steps over several switches, given the entities of each."""
        return NO_STEPS

    def acknowledged(self, switch: str, updates: Sequence[Update]) -> None:
        """Note that updates, this owner's or others', took effect."""

    def confirmed(self, switch: str, held: Entities) -> None:
        """Note that a switch with these entities has acknowledged everything from `restored` and `next_batches`."""

    def refused(self, refusal: Refusal) -> Verdict:
        """Note that a switch refused updates of owned entities, and return the consequence."""
        return Verdict.INSISTS

    def forgive(self) -> None:
        """Allow refused updates to be retried: a switch has returned, possibly with room or another program."""

    def lost(self, switch: str) -> None:
        """Note that a switch is gone, or that its contents are unknown."""

    def avoid(self, down: Set[LinkKey]) -> None:
        """Avoid dead links from now on."""


class StagedOwner(Owner):
    """An owner whose changes go through stages, each of which all switches reach before the next one begins."""

    number: int
    """Grows with each stage: then all switches must be read and reconciled again, or a pause is due."""

    @property
    @abstractmethod
    def stage(self) -> str:
        """Stage of the change, for the log."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Return whether every switch has confirmed the desired state."""

    @property
    @abstractmethod
    def pause_ns(self) -> int | None:
        """Time for which nothing may change in this stage; None if switches must be reconciled for it."""

    @abstractmethod
    def paused(self, number: int) -> None:
        """Note that the pause of stage `number` is over."""


class ListeningOwner(Owner):
    """An owner that decides by switches' counters and digests; a switch that cannot report is left as it is."""

    interval_ns: int
    """Interval at which counters are read."""
    digests: Mapping[str, Bundling]
    """The program's digests, and how they are bundled."""

    @abstractmethod
    def counter(self, switch: str) -> str | None:
        """Return the direct counter to read at a switch, None if it would show nothing."""

    @abstractmethod
    def counted(self, switch: str, packets: Mapping[EntityKey, int], now_ns: int) -> None:
        """Take a switch's counts: first when it was read and is otherwise reconciled, then after each interval."""

    @abstractmethod
    def learned(self, switch: str, learned: Learned, now_ns: int) -> None:
        """Take a digest of a switch."""

    def unheard(self, switch: str, problem: str) -> None:
        """Note that a switch's counters or digests are unavailable now; they are requested again."""


MAX_REFUSALS = 2
"""A single refusal may be due to outdated knowledge of the switch, which reading it again corrects."""


class RefusalCounts:
    """Number of times that each entity was refused, on any switch."""

    def __init__(self) -> None:
        self._counts: dict[EntityKey, int] = {}

    def note(self, updates: Iterable[Update]) -> None:
        """Note that a switch refused updates."""
        for update in updates:
            self._counts[update.key] = self._counts.get(update.key, 0) + 1

    def clear(self) -> None:
        """Reset all counts."""
        self._counts.clear()

    @property
    def refused(self) -> Set[EntityKey]:
        """Refused entities: each is left out when a switch is read, and may be tried once more after that."""
        return self._counts.keys()

    @property
    def refused_twice(self) -> frozenset[EntityKey]:
        """Entities that were refused twice."""
        return frozenset(key for key, count in self._counts.items() if count >= MAX_REFUSALS)


def own_part(owner: Owner, wanted: Entities, held: Entities) -> Entities:
    """Return a switch's entities that an owner owns or desires."""
    return {key: entity for key, entity in held.items() if key in wanted or owner.owns(key)}


def own_batches(owner: Owner, wanted: Entities, held: Entities) -> list[Batch]:
    """Return the updates that take an owner's part of a switch from `held` to the desired state."""
    return diff(wanted, own_part(owner, wanted, held), order=(*FILL_ORDER, *owner.fill_order))


class TableOwner(Owner):
    """Owns whole tables, which each switch gets as soon as it is known; a subclass defines the desired entities.

    Entities that a switch refuses twice stay as they are there, until the desired state changes or a switch returns.
    """

    tables: frozenset[str]
    """Names of the tables."""

    def __init__(self) -> None:
        self._refusals: dict[str, dict[EntityKey, tuple[Entity | None, int]]] = {}

    def owns(self, key: EntityKey) -> bool:
        """Return whether an entity is of one of the tables."""
        return key.table in self.tables

    def restored(self, switch: str, actual: Entities, known: ObservedState) -> Entities:
        """Return the desired entities; refused ones stay as found."""
        return self._allowed(switch, actual, 1)

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
        """Return the difference, without entities refused twice."""
        held = known.held.get(switch, {})
        return own_batches(self, self._allowed(switch, held, MAX_REFUSALS), held)

    def refused(self, refusal: Refusal) -> Verdict:
        """Give up on entities refused twice."""
        LOGGER.warning("%s: %s", self.name, refusal.problem)
        refusals = self._refusals.setdefault(refusal.switch, {})
        for update in refusal.updates:
            goal = None if update.verb is Verb.DELETE or is_reset(update.entity) else update.entity
            before, count = refusals.get(update.key, (goal, 0))
            refusals[update.key] = (goal, count + 1 if _agree(before, goal) else 1)
        return Verdict.SPARED

    def forgive(self) -> None:
        """Try everything again."""
        self._refusals.clear()

    def _allowed(self, switch: str, held: Entities, limit: int) -> Entities:
        """Return the desired entities; those refused too often as they are held."""
        wanted, refused = self.wanted(switch), self._refusals.get(switch)
        if not refused:
            return wanted
        stuck = {key for key, (goal, count) in refused.items() if count >= limit and _agree(goal, wanted.get(key))}
        kept = {key: held[key] for key in stuck if key in held}
        return {**{key: entity for key, entity in wanted.items() if key not in stuck}, **kept}


def _agree(left: Entity | None, right: Entity | None) -> bool:
    """Return whether two goals of one key are the same; None means absent."""
    if left is None or right is None:
        return left is right
    return same(left, right)
