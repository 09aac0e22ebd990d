"""What a script gives."""

from __future__ import annotations

from dataclasses import dataclass

from controller.apiserver.resources import Pod, PodGroup


@dataclass(frozen=True, slots=True)
class Scripted:
    """A resource that a script asks for, and where the script says so."""

    resource: Pod | PodGroup
    file: str
    line: int

    @property
    def name(self) -> str:
        """What the resource is called, with its kind: `pod web`."""
        return f"{self.resource.kind.lower()} {self.resource.metadata.name}"
