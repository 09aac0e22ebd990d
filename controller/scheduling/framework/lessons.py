"""What came of decisions, as a scheduler that serves tells it to policies that learn; nobody else does.

A decision has a key, under which it is told what came of it. `open`, `save` and `close` may take their time and are
called from other threads, one at a time; the others never wait.
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
    """What came of a decision: nanoseconds from the request to the start, and to the end; None for what never was.

    `utilisation` is the share of all cores, or units, that what runs holds at the start.
    """

    latency_ns: int | None
    utilisation: float
    response_ns: int | None = None
    """None, too, where the policy does not wait for ends."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a policy that learns stands, in figures that count from its opening.

    `decisions` are by who chose ("network", "exploration", "fallback", or "others" in shadow), `unanswered` those that
    are not by the network's highest value, by the reason. Of `compared` decisions, those with a choice and with values,
    `agreed` took the network's first choice, and `regret` sums what the others were worth less by its own values.
    `experiences` are by what became of them, `waiting` those that are not over.
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
    """Figures of training by name: steps, loss, and whatever else it tells."""
    problem: str = ""
    """What went wrong last: with training, which may be going on again, or with writing what was learned."""


class Learns(Protocol):
    """A policy that learns, once it is opened; `is_learning` says whether it is to be."""

    @property
    def is_learning(self) -> bool:
        """Whether it wants to be told what comes of decisions."""
        ...

    @property
    def save_every_s(self) -> float:
        """How often it is to be saved."""
        ...

    @property
    def longest_start_s(self) -> float:
        """What has not started after so long counts as never started."""
        ...

    @property
    def awaits_end(self) -> bool:
        """Whether what is to be learned is known at the end only, not at the start."""
        ...

    @property
    def standing(self) -> Standing:
        """How it stands."""
        ...

    def open(self) -> None:
        """Begin to learn; raise SchedulerError, in one line, where that cannot be."""
        ...

    def came(self, key: str, outcome: Outcome | None) -> None:
        """Take what came of a decision; None: nothing that says anything about it."""
        ...

    def save(self) -> None:
        """Keep what was learned; raise SchedulerError where that cannot be."""
        ...

    def close(self) -> None:
        """Save, and end learning; the policy goes on deciding by what it has."""
        ...


@runtime_checkable
class LearnsOfPods(Learns, Protocol):
    """A score of pods that learns."""

    def decided(self, key: str, pod: PendingPod, snapshot: Snapshot, nodes: Ids, node: int) -> None:
        """Take note that a pod got one of the `nodes` that were possible, by the snapshot that policies were shown."""
        ...
