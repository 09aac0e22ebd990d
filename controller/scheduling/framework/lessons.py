"""Outcomes of decisions, which only a serving scheduler reports to learning policies.

Each decision has a key that identifies it when its outcome is reported. `open`, `save` and `close` may block and are
called from other threads, one at a time; the other methods must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from controller.scheduling.framework.policies import C, C_contra, Ids, S, S_contra
from controller.scheduling.framework.profiles import Profile

Note = Callable[[str], None]
"""Called with a decision's key once the decision is in force."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a decision: nanoseconds from the request to the start, and to the end; None if it never happened.

    `utilisation` is the share of all cores, or units, that running work holds at the start.
    """

    latency_ns: int | None
    utilisation: float
    response_ns: int | None = None
    """Also None if the policy does not wait for ends."""
    eviction_ns: int | None = None
    """Time that evictions took to make room for the subject's data; None if nothing was evicted."""


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a learning policy; figures count from its opening.

    `decisions` are counted by chooser ("network", "exploration", "fallback", or "others" in shadow), `unanswered` those
    not made by the network's highest value, by reason. Of `compared` decisions, those with a choice and with values,
    `agreed` took the network's first choice, and `regret` sums the shortfall of the others by its own values.
    `experiences` are counted by what became of them; `waiting` counts those in progress.
    """

    version: int
    is_shadow: bool
    decisions: Mapping[str, int]
    unanswered: Mapping[str, int]
    compared: int
    agreed: int
    regret: float
    experiences: Mapping[str, int]
    waiting: int
    training: Mapping[str, float] = field(default_factory=dict)
    """Figures of training by name: steps, loss, and any others."""
    problem: str = ""
    """The last error: in training, which may have resumed, or in saving what was learned."""


class Learns(Protocol):
    """A policy that learns once it is opened; `is_learning` tells whether it should be."""

    @property
    def is_learning(self) -> bool:
        """True if it wants to receive outcomes of decisions."""
        ...

    @property
    def save_every_s(self) -> float:
        """Interval between saves."""
        ...

    @property
    def longest_start_s(self) -> float:
        """A subject that has not started after this long counts as never started."""
        ...

    @property
    def awaits_end(self) -> bool:
        """True if the policy learns from the end, not from the start."""
        ...

    @property
    def standing(self) -> Standing:
        """Its current state."""
        ...

    def open(self) -> None:
        """Begin to learn; raise SchedulerError, in one line, if that is impossible."""
        ...

    def came(self, key: str, outcome: Outcome | None) -> None:
        """Take the outcome of a decision; None if it tells nothing about the decision."""
        ...

    def save(self) -> None:
        """Save what was learned; raise SchedulerError if that is impossible."""
        ...

    def close(self) -> None:
        """Save and stop learning; the policy keeps deciding with what it has."""
        ...


@runtime_checkable
class Learner(Learns, Protocol[S_contra, C_contra]):
    """A score that learns."""

    def note(self, subject: S_contra, candidates: C_contra, numbers: Ids, number: int, /) -> Note:
        """Return a callback that records that a subject got one of the possible candidates `numbers`.

        Called while everything is as it was at the decision.
        """
        ...


@runtime_checkable
class SetLearner(Learner[S_contra, C_contra], Protocol[S_contra, C_contra]):
    """A score that learns from decisions for several candidates at once."""

    def note_set(self, subject: S_contra, candidates: C_contra, numbers: Ids, chosen: Sequence[int], /) -> Note:
        """Return a callback that records that a subject got all of some candidates; otherwise like `note`."""
        ...


def learners_of(profiles: Mapping[str, Profile[S, C]]) -> dict[str, Learner[S, C]]:
    """Return the policies that learn, by the name of their profile; if a profile has several, the first learns."""
    learners: dict[str, Learner[S, C]] = {}
    for name, profile in profiles.items():
        for score in profile.scores:
            if isinstance(score.policy, Learner) and score.policy.is_learning:
                learners.setdefault(name, score.policy)
    return learners
