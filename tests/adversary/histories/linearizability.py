"""A checker of concurrent histories: is there one order of all operations that explains every answer?

The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's memoisation ("Testing for
linearizability", 2017): a set of operations that have taken effect, and the state they lead to, are looked at once, nor
is what needs more operations without an answer for the same.
Histories of independent objects are checked one by one (Horn and Kroening, "Faster linearizability checking via
P-compositionality", 2015).

An operation takes effect at one moment between its call and its answer. One whose answer was lost takes effect at any
time after its call, or never.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
A = TypeVar("A", bound=Hashable)
A_contra = TypeVar("A_contra", bound=Hashable, contravariant=True)

MOST_STEPS: Final = 200_000
"""States of one object that are looked at: some seconds' worth."""


class UndecidedError(Exception):
    """The search has taken too many steps."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[A]):
    """An action of a client, from `called` to `returned` by a clock that all clients share; None: the answer was lost.

    The action has the request and, where known, the answer.
    """

    client: str
    action: A
    called: int
    returned: int | None

    def __str__(self) -> str:
        returned = "no answer" if self.returned is None else f"{self.returned / 1e9:.6f}"
        return f"{self.action} ({self.client}, {self.called / 1e9:.6f} to {returned})"


class Model(Protocol[S, A_contra]):
    """Behaviour of an object under sequential use."""

    @property
    def initial(self) -> S:
        """The state it begins in."""
        ...

    def object_of(self, action: A_contra) -> Hashable:
        """Return which object an action is about: those of different objects do not affect each other."""
        ...

    def is_possible(self, state: S, action: A_contra) -> bool:
        """Return whether an action may have the answer that it had, in a state; true where the answer is not known."""
        ...

    def after(self, state: S, action: A_contra) -> S:
        """Return the state after a possible action."""
        ...


@dataclass(frozen=True, slots=True)
class Violation(Generic[A]):
    """A history that no order explains: as far as the best order comes, and what cannot come next."""

    subject: Hashable
    explained: tuple[Operation[A], ...]
    stuck: tuple[Operation[A], ...]

    def __str__(self) -> str:
        last = "the beginning" if not self.explained else str(self.explained[-1])
        return f"{self.subject}: no order explains it: after {last} none fits of: " + "; ".join(map(str, self.stuck))


def violations(history: Sequence[Operation[A]], model: Model[S, A]) -> list[Violation[A]]:
    """Return a violation for each object whose operations no order explains; raise UndecidedError."""
    by_object: dict[Hashable, list[Operation[A]]] = defaultdict(list)
    for operation in history:
        by_object[model.object_of(operation.action)].append(operation)
    outcomes = (_Search(operations, model).run(subject) for subject, operations in by_object.items())
    return [violation for violation in outcomes if violation is not None]


@dataclass(slots=True)
class _Frame(Generic[S]):
    """A state of the search, and what may still come next; `chosen` has led here.

    `first` is the first answered operation that has not taken effect; bit i of `taken` is the one `first` + i.
    """

    state: S
    first: int
    taken: int
    lost_taken: int
    chosen: int
    candidates: Iterator[int]


@dataclass(slots=True)
class _Search(Generic[S, A]):
    """The search over one object's operations, in order of their calls; those without an answer come last."""

    operations: list[Operation[A]]
    model: Model[S, A]
    answered: int = field(init=False)
    seen: dict[tuple[int, int, S], list[int]] = field(default_factory=dict)
    """Visited search positions, with the unanswered operations used there: using more of them is never better."""
    steps: int = 0

    def __post_init__(self) -> None:
        self.operations = sorted(self.operations, key=lambda operation: (operation.returned is None, operation.called))
        self.answered = sum(operation.returned is not None for operation in self.operations)

    def run(self, subject: Hashable) -> Violation[A] | None:
        """Return None once an order is found."""
        frames = [self._frame(self.model.initial, 0, 0, 0, -1)]
        best: list[int] = []
        while frames[-1].first < self.answered:
            frame = frames[-1]
            number = next(frame.candidates, None)
            if number is None:
                if len(frames) - 1 > len(best):
                    best = [each.chosen for each in frames[1:]]
                frames.pop()
                if not frames:
                    return self._violation(subject, best)
                continue
            following = self._taken(frame, number)
            if following is not None:
                frames.append(following)
        return None

    def _frame(self, state: S, first: int, taken: int, lost_taken: int, chosen: int) -> _Frame[S]:
        return _Frame(state, first, taken, lost_taken, chosen, self._candidates(state, first, taken, lost_taken))

    def _taken(self, frame: _Frame[S], number: int) -> _Frame[S] | None:
        """Return the position after an operation takes effect next; None if impossible, or if already visited."""
        action = self.operations[number].action
        if not self.model.is_possible(frame.state, action):
            return None
        state = self.model.after(frame.state, action)
        first, taken, lost_taken = frame.first, frame.taken, frame.lost_taken
        if number < self.answered:
            taken |= 1 << (number - first)
            while taken & 1:
                first, taken = first + 1, taken >> 1
        elif state == frame.state:
            return None  # without an effect it can as well be left out
        else:
            lost_taken |= 1 << (number - self.answered)
        before = self.seen.setdefault((first, taken, state), [])
        if any(used & lost_taken == used for used in before):
            return None
        before.append(lost_taken)
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise UndecidedError(f"{self.model.object_of(action)}: undecided after {MOST_STEPS} steps")
        return self._frame(state, first, taken, lost_taken, number)

    def _candidates(self, state: S, first: int, taken: int, lost_taken: int) -> Iterator[int]:
        """Yield the operations that may come next: those called before any other pending one was answered.

        Operations without an answer come last: most of them explain nothing.
        """
        until = None
        for number in range(first, self.answered):
            operation = self.operations[number]
            if until is not None and operation.called > until:
                break
            if not taken >> (number - first) & 1:
                yield number
                assert operation.returned is not None
                until = operation.returned if until is None else min(until, operation.returned)
        tried: set[S] = set()
        for number in range(self.answered, len(self.operations)):
            operation = self.operations[number]
            if until is not None and operation.called > until:
                break
            if lost_taken >> (number - self.answered) & 1:
                continue
            after = self.model.after(state, operation.action)
            if after not in tried:  # of those that do the same the first has the most time
                tried.add(after)
                yield number

    def _violation(self, subject: Hashable, best: list[int]) -> Violation[A]:
        explained, chosen = tuple(self.operations[number] for number in best), set(best)
        left = [operation for number, operation in enumerate(self.operations[: self.answered]) if number not in chosen]
        until = min(operation.returned for operation in left if operation.returned is not None)
        return Violation(subject, explained, tuple(operation for operation in left if operation.called <= until))
