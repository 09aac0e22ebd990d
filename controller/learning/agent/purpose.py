"""Purpose of an agent: observations for another purpose have the same shape but another meaning."""

from __future__ import annotations

from typing import Final, Literal, Self

import msgspec

from controller.learning.errors import LearningError
from controller.learning.values import Observation

Kind = Literal["nodes", "jobs", "pods", "tasks"]
"""Kind of action: one of a pool's nodes, of a queue's jobs, of the cluster's nodes for a pod, of centres for a task."""

_NAMES: Final = {"nodes": "nodes of a pool", "jobs": "jobs of a queue", "pods": "pods", "tasks": "tasks"}


class MadeFor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Purpose of an agent, and the optional features of an action that it observes.

    `network` adds delay and bandwidth, for jobs their waits and sizes; `load` adds queues, engines and ports.
    """

    kind: Kind
    network: bool
    load: bool

    @classmethod
    def of(cls, kind: Kind, observation: Observation) -> Self:
        """Return the purpose of an agent for observations like this one."""
        return cls(kind, observation.has_network, observation.has_load)

    def check(self, here: MadeFor) -> None:
        """Raise LearningError if an agent is used for another purpose."""
        if self != here:
            was = str(self) if self.kind == here.kind else _NAMES[self.kind]
            now = str(here) if self.kind == here.kind else _NAMES[here.kind]
            raise LearningError(f"it was made for {was}, not for {now}")

    def __str__(self) -> str:
        """Return it in words."""
        names = ("waits and sizes", "job features") if self.kind == "jobs" else ("network features", "load features")
        shown = [name for name, is_on in zip(names, (self.network, self.load), strict=True) if is_on]
        return f"{_NAMES[self.kind]} with {' and '.join(shown) or 'the six features only'}"
