"""The state folder of a node's manager: what it has beside what all such folders have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from controller.apiserver.agents.state_folder import StateFolder
from controller.workloads.nodes.errors import NodeError


@dataclass(frozen=True, slots=True)
class NodeFolder(StateFolder):
    """A folder that only its user can enter, of one node."""

    kind: ClassVar = "node"
    holder: ClassVar = "a manager"
    error: ClassVar = NodeError

    @property
    def lease(self) -> Path:
        """Until when pods may run."""
        return self.path / "lease"

    @property
    def guard_lock(self) -> Path:
        """What the guard holds."""
        return self.path / "guard.lock"

    @property
    def guard_log(self) -> Path:
        """What a guard says that cannot run."""
        return self.path / "guard.log"
