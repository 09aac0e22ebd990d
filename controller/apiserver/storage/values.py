"""Values of the storage: keys with revisions, what is asked of them, and what happened to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.common.errors import StorageError

MAX_KEY_BYTES: Final = 512
MAX_VALUE_BYTES: Final = 1 << 20
MAX_CHANGES: Final = 128
"""Changes, and keys looked at, of one transaction; as many as etcd takes by default."""
ABSENT: Final = 0
"""The revision of a key that is not there."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A key and its value; `created` and `modified` are revisions, `version` counts its changes since it was created.

    With a `lease` the key goes when the lease ends.
    """

    key: str
    value: bytes
    created: int
    modified: int
    version: int
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Keys in order, as they were at a revision; `more` says that there are others after the last one."""

    items: tuple[Stored, ...]
    revision: int
    more: bool


@dataclass(frozen=True, slots=True)
class Put:
    """A key is to have a value, and to go with a lease if there is one."""

    key: str
    value: bytes
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A key is to go; one that is not there stays so."""

    key: str


Change = Put | Delete


@dataclass(frozen=True, slots=True)
class Expected:
    """A key must have been modified last at this revision, `ABSENT` for one that must not be there."""

    key: str
    revision: int


class EventKind(StrEnum):
    """What happened to a key."""

    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Event:
    """A key was written, or went; `stored` is what it is since, None where it went."""

    kind: EventKind
    key: str
    revision: int
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Keeps keys for as long as it is renewed; it ends `ttl_s` after the last renewal."""

    number: int
    ttl_s: float


def check_key(key: str) -> None:
    """Raise StorageError for a key that no storage keeps."""
    if not key or "\0" in key or len(key.encode(errors="replace")) > MAX_KEY_BYTES or not _is_text(key):
        raise StorageError(f"a key has 1 to {MAX_KEY_BYTES} bytes of UTF-8 and no NUL: {key[:40]!r}")


def check_transaction(expected: tuple[Expected, ...], changes: tuple[Change, ...]) -> None:
    """Raise StorageError for a transaction that no storage takes: too large, or a key changed twice."""
    for part in (*expected, *changes):
        check_key(part.key)
    if len(expected) > MAX_CHANGES or len(changes) > MAX_CHANGES:
        raise StorageError(f"a transaction has at most {MAX_CHANGES} changes and {MAX_CHANGES} expectations")
    if len({change.key for change in changes}) != len(changes):
        raise StorageError("a transaction changes a key at most once")
    for change in changes:
        if isinstance(change, Put) and len(change.value) > MAX_VALUE_BYTES:
            raise StorageError(f"{change.key}: a value has at most {MAX_VALUE_BYTES} bytes, not {len(change.value)}")


def _is_text(key: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in key)
