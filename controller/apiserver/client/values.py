"""What clients give: lists, and what happens to resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from controller.apiserver.registry.events import EventType
from controller.apiserver.resources.base import R


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """Resources as they were at a revision; `age_s` is None unless the server answered without its storage."""

    items: tuple[R, ...]
    revision: int
    age_s: int | None = None


@dataclass(frozen=True, slots=True)
class Event(Generic[R]):
    """A resource is what was asked for (PUT), or is it not any more (DELETE).

    `resource` of a deletion is what it was before, None where that is not known. A BOOKMARK is of no resource: all
    that happened up to its revision was seen.
    """

    type: EventType
    name: str
    revision: int
    resource: R | None = None
