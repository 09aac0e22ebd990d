"""Outcomes of decisions, which only a serving scheduler reports to learning policies.

Each decision has a key that identifies it when its outcome is reported. `open`, `save` and `close` may block and are
called from other threads, one at a time; the other methods must not block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from controller.scheduling.framework.columns import Ids
from controller.scheduling.framework.snapshot import Snapshot
from controller.scheduling.framework.values import PendingPod


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a decision: nanoseconds from the request to the start, and to the end; None if it never happened.

    `utilisation` is the share of all cores, or units, that running work holds at the start.
    """

    latency_ns: int | None
    utilisation: float
    response_ns: int | None = None
    """Also None if the policy does not wait for ends."""


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a learning policy; figures count from its opening.

    `decisions` are by who chose ("network", "exploration", "fallback", or "others" in shadow), `unanswered` those not
    made by the network's highest value, by reason. Of `compared` decisions, those with a choice and with values,
    `agreed` took the network's first choice, and `regret` sums the shortfall of the others by its own values.
    `experiences` are by their fate; `waiting` counts those in progress.
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
        """Take the outcome of a decision; None if it says nothing about the decision."""
        ...

    def save(self) -> None:
        """Save what was learned; raise SchedulerError if that is impossible."""
        ...

    def close(self) -> None:
        """Save and stop learning; the policy keeps deciding with what it has."""
        ...


@runtime_checkable
class LearnsOfPods(Learns, Protocol):
    """A score of pods that learns."""

    def decided(self, key: str, pod: PendingPod, snapshot: Snapshot, nodes: Ids, node: int) -> None:
        """Record that a pod got one of the possible `nodes`, with the snapshot that policies saw."""
        ...
