"""Common parts of all resources: kind, metadata, desired state (spec) and observed state (status); types of fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from dataplane.config import Strict

# In Python `$` also matches before a trailing newline.
_NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$(?!\n)"
_LABEL_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$(?!\n)"
_VALUE_PATTERN: Final = r"^([A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?)?$(?!\n)"

MOST_ITEMS: Final = 4096
MAX_NAME: Final = 100

Name = Annotated[str, Meta(pattern=_NAME_PATTERN, max_length=MAX_NAME)]
"""Name of a resource or a part: lower case letters, digits, dots and hyphens."""
LabelName = Annotated[str, Meta(pattern=_LABEL_PATTERN, max_length=100)]
LabelValue = Annotated[str, Meta(pattern=_VALUE_PATTERN, max_length=100)]
Line = Annotated[str, Meta(max_length=1024)]
"""One line of human-readable text."""
Text = Annotated[str, Meta(max_length=65_536)]
Lines = Annotated[tuple[Line, ...], Meta(max_length=256)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
"""An integer that JSON readers in any language represent exactly."""
TimeNs = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Nanoseconds since 1970."""
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Secrets = Annotated[dict[Line, Name], Meta(max_length=64)]
"""Environment variables that take their values from project secrets: files that only the node, or centre, reads."""
Names = Annotated[tuple[Name, ...], Meta(max_length=MOST_ITEMS)]


class Metadata(Strict, frozen=True):
    """Identity of a resource; the server sets everything but name and labels."""

    name: Name
    uid: Annotated[str, Meta(max_length=64)] = ""
    """Distinguishes this resource from any other of the same name, past or future."""
    revision: Count = 0
    """Revision of the last write; a write that names it succeeds only if it is still current."""
    created_ns: TimeNs = 0
    deleting_ns: TimeNs | None = None
    """Time from which it is marked for deletion; it is removed once it holds nothing."""
    owner: Annotated[str, Meta(max_length=128)] = ""
    """Creator: a user's name, or `ROLE:NAME` for other roles; empty: created by an older version."""
    project: Annotated[str, Meta(max_length=63)] = ""
    """Project whose users share it; empty: only its owner has it. Users may name a project of their own, others any."""
    part_of: Name | None = None
    """For a pod: the group whose template it follows, for the same owner and project."""
    labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=64)] = msgspec.field(default_factory=dict)

    @property
    def account(self) -> str:
        """The account that the resource counts for: its project, or else its owner."""
        return f"project {self.project}" if self.project else f"owner {self.owner or 'unknown'}"


class Resource(Strict, frozen=True):
    """Base of every resource; subclasses add `kind`, `spec` and `status`."""

    metadata: Metadata
    if TYPE_CHECKING:
        spec: Any
        status: Any


R = TypeVar("R", bound=Resource)
FieldValue = str | tuple[str, ...] | None
