"""Parsed manifests."""

from __future__ import annotations

from dataclasses import dataclass

from controller.apiserver.resources import Pod, PodGroup


@dataclass(frozen=True, slots=True)
class Scripted:
    """A resource of a manifest, and its location in the file."""

    resource: Pod | PodGroup
    file: str
    line: int

    @property
    def name(self) -> str:
        """Kind and name of the resource: `pod web`."""
        return f"{self.resource.kind.lower()} {self.resource.metadata.name}"
