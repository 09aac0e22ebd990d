"""The API's resources as registers: get, create, put, compare-and-swap by revision, delete.

Each value is written once, so that whoever reads one knows which write it is of. Revisions grow with each write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tests.adversary.histories.linearizability import Operation


class Verb(StrEnum):
    """What is asked; with `expected` a put or delete is a compare-and-swap."""

    GET = "get"
    CREATE = "create"
    PUT = "put"
    DELETE = "delete"


class Outcome(StrEnum):
    """What is answered."""

    DONE = "done"
    ABSENT = "absent"
    STALE = "stale"
    """It is there already, or of another revision than expected."""
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Version:
    """What a register is; the value None: it is not there.

    After a write whose answer was lost only a lower bound of the revision is known: it is greater.
    """

    value: str | None
    revision: int
    is_exact: bool = True

    def may_be(self, revision: int | None) -> bool:
        """Return whether it can be of a revision."""
        return revision is None or (self.revision == revision if self.is_exact else self.revision < revision)


@dataclass(frozen=True, slots=True)
class Action:
    """A request and its answer: `value` is what was written, or read, `revision` the answer's."""

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
    """A model of registers, none of which is there in the beginning."""

    initial = Version(None, 0)

    def object_of(self, action: Action) -> str:
        """Return the register's name."""
        return action.name

    def is_possible(self, state: Version, action: Action) -> bool:
        """Return whether a register in a state answers so."""
        is_expected = state.may_be(action.expected)
        is_later = action.revision is None or state.revision < action.revision
        match action.outcome, action.verb:
            case Outcome.LOST, _:
                return True
            case Outcome.ABSENT, _:
                return state.value is None
            case Outcome.STALE, Verb.CREATE:
                return state.value is not None
            case Outcome.STALE, _:
                return state.value is not None and not (state.is_exact and is_expected)
            case _, Verb.GET:
                return state.value is not None and state.value == action.value and state.may_be(action.revision)
            case _, Verb.CREATE:
                return state.value is None and is_later
            case _:
                return state.value is not None and is_expected and is_later

    def after(self, state: Version, action: Action) -> Version:
        """Return what a register is afterwards; a lost request that it refuses changes nothing."""
        if action.outcome in (Outcome.ABSENT, Outcome.STALE):
            return state
        if action.outcome is Outcome.LOST and not self.is_possible(state, replace(action, outcome=Outcome.DONE)):
            return state
        if action.verb is Verb.GET:
            return state if action.revision is None else Version(action.value, action.revision)
        value = None if action.verb is Verb.DELETE else action.value
        if action.revision is None:
            return Version(value, state.revision, is_exact=False)
        return Version(value, action.revision)


def resolved(
    history: Iterable[Operation[Action]], seen: Mapping[tuple[str, str], tuple[int, int]]
) -> Sequence[Operation[Action]]:
    """Return a history in which a write without an answer whose value was seen has taken effect before that.

    `seen` has the revision of each register's values, and when whoever saw it first had it.
    """
    return [_resolved(operation, seen) for operation in history]


def _resolved(operation: Operation[Action], seen: Mapping[tuple[str, str], tuple[int, int]]) -> Operation[Action]:
    action = operation.action
    if action.outcome is not Outcome.LOST or action.value is None or (action.name, action.value) not in seen:
        return operation
    revision, at = seen[action.name, action.value]
    return replace(operation, action=replace(action, outcome=Outcome.DONE, revision=revision), returned=at)
