"""The API's resources as registers: get, create, put, compare-and-swap by revision, delete.

Each value is written once, so that a read identifies its write. Revisions grow with each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.adversary.histories.linearizability import Operation


class Verb(StrEnum):
    """Requested operation; with `expected` a put or delete is a compare-and-swap."""

    GET = "get"
    CREATE = "create"
    PUT = "put"
    DELETE = "delete"


class Outcome(StrEnum):
    """Outcome of an operation."""

    DONE = "done"
    ABSENT = "absent"
    STALE = "stale"
    """It exists already, or has another revision than expected."""
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Version:
    """State of a register; value None means absent.

    After a write whose answer was lost, `revision` is only a lower bound: the real one is greater.
    """

    value: str | None
    revision: int
    is_exact: bool = True

    def may_be(self, revision: int | None) -> bool:
        """Return whether it can be of a revision."""
        return revision is None or (self.revision == revision if self.is_exact else self.revision < revision)


@dataclass(frozen=True, slots=True)
class Action:
    """A request and its answer: `value` was written or read; `revision` is the answer's."""

    name: str
    verb: Verb
    outcome: Outcome
    value: str | None = None
    revision: int | None = None
    expected: int | None = None

    def __str__(self) -> str:
        condition = "" if self.expected is None else f" if of revision {self.expected}"
        value = "" if self.value is None else f" {self.value}"
        revision = "" if self.revision is None else f" at revision {self.revision}"
        return f"{self.verb} {self.name}{value}{condition}: {self.outcome}{revision}"


class Registers:
    """A model of registers that are all absent at first."""

    initial = Version(None, 0)

    def object_of(self, action: Action) -> str:
        """Return the register's name."""
        return action.name

    def is_possible(self, state: Version, action: Action) -> bool:
        """Return whether a register in a state answers so."""
        match action.outcome, action.verb:
            case Outcome.LOST, _:
                return True
            case Outcome.ABSENT, _:
                return state.value is None
            case Outcome.STALE, Verb.CREATE:
                return state.value is not None
            case Outcome.STALE, _:
                return state.value is not None and not (state.is_exact and state.may_be(action.expected))
            case _:
                return _is_done(state, action)

    def after(self, state: Version, action: Action) -> Version:
        """Return what a register is afterwards; a lost request that it refuses changes nothing."""
        if action.outcome in (Outcome.ABSENT, Outcome.STALE):
            return state
        if action.outcome is Outcome.LOST and not _is_done(state, action):
            return state
        if action.verb is Verb.GET:
            return state if action.revision is None else Version(action.value, action.revision)
        value = None if action.verb is Verb.DELETE else action.value
        if action.revision is None:
            return Version(value, state.revision, is_exact=False)
        return Version(value, action.revision)


def _is_done(state: Version, action: Action) -> bool:
    """Return whether a register can do an operation with its known answer."""
    is_later = action.revision is None or state.revision < action.revision
    match action.verb:
        case Verb.GET:
            return state.value is not None and state.value == action.value and state.may_be(action.revision)
        case Verb.CREATE:
            return state.value is None and is_later
        case _:
            return state.value is not None and state.may_be(action.expected) and is_later


@dataclass(frozen=True, slots=True)
class Observed:
    """Observations of registers by readers and watches, and the time of the first."""

    values: Mapping[tuple[str, str], tuple[int, int]]
    """The revision of each register's values, and when."""
    deletions: Mapping[tuple[str, int], int]
    """Time when a register was first seen deleted, by name and revision."""
    is_complete: bool
    """True if a watch has delivered everything: a value never seen was never written."""


def resolved(history: Iterable[Operation[Action]], observed: Observed) -> list[Operation[Action]]:
    """Return a history in which writes with lost answers took effect before they were observed.

    Those missing in a complete watch are left out.
    """
    answered, lost = list[Operation[Action]](), list[Operation[Action]]()
    for operation in history:
        (lost if operation.action.outcome is Outcome.LOST else answered).append(operation)
    deletions = {
        (operation.action.name, operation.action.revision)
        for operation in answered
        if operation.action.verb is Verb.DELETE
    }
    left = [operation for operation in lost if not _is_observed(operation, observed)]
    answered += [
        _answered(operation, *observed.values[_key(operation)])
        for operation in lost
        if _is_observed(operation, observed)
    ]
    if not observed.is_complete:
        return answered + left
    for (name, revision), at in observed.deletions.items():
        able = [
            operation
            for operation in left
            if operation.action.name == name and operation.action.verb is Verb.DELETE and operation.called < at
        ]
        if (name, revision) not in deletions and able:
            # Whichever it was: the first had the most time.
            first = min(able, key=lambda operation: operation.called)
            answered.append(_answered(replace(first, action=replace(first.action, expected=None)), revision, at))
    return answered


def _key(operation: Operation[Action]) -> tuple[str, str]:
    return operation.action.name, operation.action.value or ""


def _is_observed(operation: Operation[Action], observed: Observed) -> bool:
    return operation.action.value is not None and _key(operation) in observed.values


def _answered(operation: Operation[Action], revision: int, at: int) -> Operation[Action]:
    action = replace(operation.action, outcome=Outcome.DONE, revision=revision)
    return replace(operation, action=action, returned=at)
