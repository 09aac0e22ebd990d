"""The state folder of a node's manager: its additions to the common layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from controller.apiserver.agents.state_folder import StateFolder
from controller.workloads.nodes.errors import NodeError


@dataclass(frozen=True, slots=True)
class NodeFolder(StateFolder):
    """Folder of one node that only its user can enter."""

    kind: ClassVar = "node"
    holder: ClassVar = "a manager"
    error: ClassVar = NodeError

    @property
    def lease(self) -> Path:
        """File with the time until which pods may run."""
        return self.path / "lease"

    @property
    def guard_lock(self) -> Path:
        """Lock file held by the guard."""
        return self.path / "guard.lock"

    @property
    def guard_log(self) -> Path:
        """File for the messages of a guard that cannot run."""
        return self.path / "guard.log"
