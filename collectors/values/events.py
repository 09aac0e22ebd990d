"""Events: a rule's verdict on one figure of one subject."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from collectors.values.jobs import ChildKey, JobKey
from collectors.values.records import FlowKey
from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True)
class ReporterKey:
    """A reporter as an event's subject."""

    node_id: int
    hw_id: int

    def __str__(self) -> str:
        return f"node {self.node_id} hw {self.hw_id}"


Subject = LinkKey | FlowKey | ReporterKey | JobKey | ChildKey
"""Subject of an event."""


class Severity(StrEnum):
    """Urgency of an event."""

    WARNING = "warning"
    CRITICAL = "critical"


class Phase(StrEnum):
    """Phase of an event: something began, or it ended."""

    RAISED = "raised"
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure of the event's subject at a time: the watched figure, or context."""

    time_ns: int
    figure: str
    value: float


@dataclass(frozen=True, slots=True)
class EventNote:
    """Acknowledgement of an event: by whom, in which words, and when (ns since 1970)."""

    by: str
    text: str
    at_ns: int


@dataclass(frozen=True, slots=True)
class Event:
    """A rule's verdict on one figure of one subject; `evidence` oldest first, the rule's own figure among it.

    `threshold` is what `value` crossed: the rule's limit, its clear limit, or a change point's level before the change.
    `note` is None until somebody has acknowledged the event.
    """

    time_ns: int
    rule: str
    subject: Subject
    figure: str
    value: float
    threshold: float
    phase: Phase
    evidence: tuple[Evidence, ...] = ()
    note: EventNote | None = None
    severity: Severity = Severity.WARNING
