"""Values of the storage: keys with revisions, requests and events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.common.errors import StorageError

MAX_KEY_BYTES: Final = 512
MAX_VALUE_BYTES: Final = 1 << 20
MAX_CHANGES: Final = 128
"""Changes and key conditions per transaction; etcd's default limit."""
ABSENT: Final = 0
"""Revision of a key that does not exist."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A key and its value; `created` and `modified` are revisions, `version` counts changes since creation.

    With a `lease` the key is deleted when the lease ends.
    """

    key: str
    value: bytes
    created: int
    modified: int
    version: int
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Keys in order, as of one revision; `more` means that others follow."""

    items: tuple[Stored, ...]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class Put:
    """Set a key's value, and optionally its lease."""

    key: str
    value: bytes
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a key; no effect if it does not exist."""

    key: str


Change = Put | Delete


@dataclass(frozen=True, slots=True)
class Expected:
    """Condition that a key was last modified at this revision; `ABSENT`: that it does not exist."""

    key: str
    revision: int


class EventKind(StrEnum):
    """Type of an event."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Event:
    """A key was written or deleted; `stored` is the new value, None after a deletion."""

    kind: EventKind
    key: str
    revision: int
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps keys alive while renewed; it ends `ttl_s` after the last renewal."""

    number: int
    ttl_s: float


def check_key(key: str) -> None:
    """Raise StorageError for an invalid key."""
    if not key or "\0" in key or len(key.encode(errors="replace")) > MAX_KEY_BYTES or not _is_text(key):
        raise StorageError(f"a key must have 1 to {MAX_KEY_BYTES} bytes of UTF-8 and no NUL: {key[:40]!r}")


def check_transaction(expected: tuple[Expected, ...], changes: tuple[Change, ...]) -> None:
    """Raise StorageError for an invalid transaction: too large, or with a key changed twice."""
    for part in (*expected, *changes):
        check_key(part.key)
    if len(expected) > MAX_CHANGES or len(changes) > MAX_CHANGES:
        raise StorageError(f"a transaction may have at most {MAX_CHANGES} changes and {MAX_CHANGES} expectations")
    if len({change.key for change in changes}) != len(changes):
        raise StorageError("a transaction may change a key at most once")
    for change in changes:
        if isinstance(change, Put) and len(change.value) > MAX_VALUE_BYTES:
            raise StorageError(
                f"{change.key}: a value may have at most {MAX_VALUE_BYTES} bytes, not {len(change.value)}"
            )


def _is_text(key: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in key)
