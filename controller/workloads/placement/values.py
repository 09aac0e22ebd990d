"""What the workload controller decides to do: one value for each write, with what is expected of what it changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from controller.apiserver.registry.placements import Release
from controller.apiserver.resources import Node, Pod, PodGroup


@dataclass(frozen=True, slots=True)
class CreatePod:
    """A pod of a group's template is to be there, if none of its name is."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class DeletePod:
    """A pod is to go, if it is still as it was seen; of an orphan, if its group of that uid is really gone."""

    pod: Pod
    why: str
    orphan_of: tuple[str, str] | None = None
    """Name and uid of the group that is not there."""


@dataclass(frozen=True, slots=True)
class SetPod:
    """A pod's status is to be this, if it is still of its revision."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class SetGroup:
    """A group's status is to be this, if it is still of its revision."""

    group: PodGroup
    why: str
    explained: bool = False
    """The scheduler's newest refusal is added to the reasons."""


@dataclass(frozen=True, slots=True)
class MarkSilent:
    """A node's status is to say that it is not ready, if it is still of its revision."""

    node: Node
    why: str


@dataclass(frozen=True, slots=True)
class SetNode:
    """A node's labels and spec are to be this, if it is still of its revision."""

    node: Node
    why: str


@dataclass(frozen=True, slots=True)
class ReleaseSilent:
    """Pods give back what they hold of a node, if it has not reported since; up to 50."""

    node: str
    heartbeat_ns: int
    releases: tuple[Release, ...]
    counts: bool = True
    """Whether it counts for the rate at which nodes' pods are placed again."""


@dataclass(frozen=True, slots=True)
class ReleaseShare:
    """What is held of a node for a pod that is not there is given back."""

    node: str
    pod: str


Action: TypeAlias = CreatePod | DeletePod | SetPod | SetGroup | MarkSilent | SetNode | ReleaseSilent | ReleaseShare


@dataclass(frozen=True, slots=True)
class Decided:
    """What is to be done now, and when to decide again at the latest if nothing happens (None: not before)."""

    actions: tuple[Action, ...] = ()
    due_ns: int | None = None
    silent: tuple[str, ...] = ()
    """Nodes."""
    held: str = ""
    """Why pods of silent nodes are not placed again at full rate; empty if they are."""
    stuck: tuple[str, ...] = ()
    """A line for each pod that a node which reports does not get to stop."""


@dataclass(slots=True)
class Plan:
    """What a round's deciders add to."""

    actions: list[Action] = field(default_factory=list)
    due_ns: int | None = None

    def do(self, *actions: Action) -> None:
        """Add what is to be done."""
        self.actions += actions

    def again_at(self, ns: int) -> None:
        """Have it decided again then at the latest."""
        self.due_ns = ns if self.due_ns is None else min(self.due_ns, ns)
