"""Decision: a scheduler's decision, with each node's refusal or score and the reasons."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.resources.base import MOST_ITEMS, Count, Line, Lines, Metadata, Name, Names, Resource, TimeNs
from controller.apiserver.resources.hardware import DeviceShares
from controller.apiserver.resources.kind import Kind, Rights, Server, Strategy, Verb
from dataplane.config import Strict
from dataplane.notebook import table_html
from dataplane.rpc.access import Principal, Role


class Outcome(StrEnum):
    """Outcome of a decision."""

    BOUND = "bound"
    REFUSED = "refused"
    PREEMPTING = "preempting"
    RELEASED = "released"
    DISPATCHED = "dispatched"
    WAITING = "waiting"
    """Waits for units that are held, or for a later time."""
    MOVED = "moved"


class Refusal(Strict, frozen=True):
    """A reason, and all nodes that were refused for it."""

    reason: Line
    nodes: Names
    policy: Line = ""


class Score(Strict, frozen=True):
    """A node's score, with each policy's part and reason."""

    node: Name
    total: float
    parts: Annotated[dict[Line, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    reasons: Lines = ()


class Placement(Strict, frozen=True):
    """A pod's node and devices."""

    pod: Name
    node: Name
    devices: DeviceShares = ()


class DecisionSpec(Strict, frozen=True):
    """Subjects, outcome, scheduler and the state that it used."""

    subject_kind: Name
    """In lower case: pod, podgroup, task, unitpool."""
    subjects: Names
    outcome: Outcome
    group: Name | None = None
    """Group of the pods, if the decision is about a group."""
    profile: Name = "default"
    scheduler: Line = ""
    reason: Line = ""
    placements: Annotated[tuple[Placement, ...], Meta(max_length=256)] = ()
    refused: Annotated[tuple[Refusal, ...], Meta(max_length=MOST_ITEMS)] = ()
    scores: Annotated[tuple[Score, ...], Meta(max_length=MOST_ITEMS)] = ()
    """The best first."""
    preempted: Names = ()
    revision: Count | None = None
    """Revision of the state that the scheduler saw."""
    measured: bool | None = None
    """True if the network's figures were measured, false if nominal."""
    network_age_ns: Count | None = None
    begun_ns: TimeNs | None = None
    decided_ns: TimeNs | None = None


class DecisionStatus(Strict, frozen=True):
    """Empty: the outcome for its subject is in the subject's status."""


class Decision(Resource, frozen=True):
    """A scheduler's decision."""

    spec: DecisionSpec
    status: DecisionStatus = DecisionStatus()
    kind: Literal["Decision"] = "Decision"

    def _repr_html_(self) -> str:
        """Show the candidates and the placements in a notebook."""
        spec = self.spec
        placed = ", ".join(f"{placement.pod} on {placement.node}" for placement in spec.placements)
        caption = f"{' '.join((spec.subject_kind, *spec.subjects))}: {spec.outcome.value}. {placed or spec.reason}"
        scores = [(score.node, f"{score.total:g}", "; ".join(score.reasons)) for score in spec.scores]
        refused = [(", ".join(refusal.nodes), None, f"refused: {refusal.reason}") for refusal in spec.refused]
        return table_html(caption, ("candidate", "points", "reason"), [*scores, *refused])


class DecisionStrategy(Strategy[Decision]):
    """Decisions: each belongs to the owner of its subjects."""

    def prepare(self, new: Decision, principal: Principal, server: Server) -> Decision:
        """Take owner and project from the subjects, as far as they are in memory."""
        subjects = (server.subject(new.spec.subject_kind, name) for name in new.spec.subjects)
        return replace(
            new, metadata=of_subjects(new.metadata, (subject for subject in subjects if subject is not None))
        )


def of_subjects(metadata: Metadata, subjects: Iterable[Metadata]) -> Metadata:
    """Return a decision's metadata with the owner and project of its subjects, if they share one account."""
    metadatas = list(subjects)
    if not metadatas or len({metadata.account for metadata in metadatas}) > 1:
        return metadata
    return replace(metadata, owner=metadatas[0].owner, project=metadatas[0].project)


DECISION = Kind(
    "Decision",
    "decisions",
    Decision,
    fields={
        "outcome": lambda decision: decision.spec.outcome.value,
        "group": lambda decision: decision.spec.group,
        "about": lambda decision: decision.spec.subjects,
        "subject": lambda decision: decision.spec.subjects[0] if len(decision.spec.subjects) == 1 else None,
    },
    columns={
        "about": lambda decision: " ".join((decision.spec.subject_kind, *decision.spec.subjects[:3])),
        "outcome": lambda decision: decision.spec.outcome.value,
        "placed": lambda decision: " ".join(
            f"{placement.pod}->{placement.node}" for placement in decision.spec.placements[:4]
        ),
        "reason": lambda decision: decision.spec.reason,
    },
    rights=Rights(is_private=True, roles={Role.PLACEMENT: frozenset({Verb.READ})}),
    strategy=DecisionStrategy(),
)
