"""Values that clients return: lists and events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from controller.apiserver.registry.events import EventType
from controller.apiserver.resources.base import R


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """Resources as of one revision; `age_s` is None unless the server answered without its storage."""

    items: tuple[R, ...]
    revision: int
    age_s: int | None = None


@dataclass(frozen=True, slots=True)
class Event(Generic[R]):
    """A resource matches the selection (PUT), or no longer does (DELETE).

    For a deletion `resource` is the previous state, None if that is not known. A BOOKMARK has no resource: every event
    up to its revision was seen.
    """

    type: EventType
    name: str
    revision: int
    resource: R | None = None
