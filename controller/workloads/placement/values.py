"""Decisions of the workload controller: one value for each write, with the expected state of its target."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from controller.apiserver.registry.placements import Release
from controller.apiserver.resources import Node, Pod, PodGroup


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create a pod of a group's template, unless its name is taken."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete a pod, if it is unchanged; an orphan, if its group of that uid is really gone."""

    pod: Pod
    why: str
    orphan_of: tuple[str, str] | None = None
    """Name and uid of the missing group."""


@dataclass(frozen=True, slots=True)
class SetPod:
    """Set a pod's status, if it still has this revision."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class SetGroup:
    """Set a group's status, if it still has this revision."""

    group: PodGroup
    why: str
    explained: bool = False
    """Add the scheduler's newest refusal to the reasons."""


@dataclass(frozen=True, slots=True)
class MarkSilent:
    """Mark a node as not ready, if it still has this revision."""

    node: Node
    why: str


@dataclass(frozen=True, slots=True)
class SetNode:
    """Set a node's labels and spec, if it still has this revision."""

    node: Node
    why: str


@dataclass(frozen=True, slots=True)
class ReleaseSilent:
    """Have pods release their shares of a node, if it has not reported since; up to 50."""

    node: str
    heartbeat_ns: int
    releases: tuple[Release, ...]
    counts: bool = True
    """True if it counts for the rate at which nodes' pods are placed again."""


@dataclass(frozen=True, slots=True)
class ReleaseShare:
    """Release a node's share of a pod that does not exist."""

    node: str
    pod: str


Action: TypeAlias = CreatePod | DeletePod | SetPod | SetGroup | MarkSilent | SetNode | ReleaseSilent | ReleaseShare


@dataclass(frozen=True, slots=True)
class Decided:
    """Writes due now, and when to decide again at the latest if nothing happens (None: not before)."""

    actions: tuple[Action, ...] = ()
    due_ns: int | None = None
    silent: tuple[str, ...] = ()
    """Silent nodes."""
    held: str = ""
    """Reason why pods of silent nodes are not placed again at full rate; empty if they are."""
    stuck: tuple[str, ...] = ()
    """A line for each pod that a reporting node fails to stop."""


@dataclass(slots=True)
class Plan:
    """Plan of a round, which its deciders add to."""

    actions: list[Action] = field(default_factory=list)
    due_ns: int | None = None

    def do(self, *actions: Action) -> None:
        """Add an action."""
        self.actions += actions

    def again_at(self, ns: int) -> None:
        """Schedule the next decision no later than this."""
        self.due_ns = ns if self.due_ns is None else min(self.due_ns, ns)
