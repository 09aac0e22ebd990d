"""Resources in a storage: list, get, create, replace, delete; each write by compare-and-swap."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from controller.apiserver.registry.acknowledged import AcknowledgedWrites
from controller.apiserver.registry.encoding import decode, decoded_as, encode, key_of, kind_of, made_plain, prefix_of
from controller.apiserver.registry.selection import ALL, Selection
from controller.apiserver.resources import Kind, Metadata, Resource
from controller.apiserver.resources.base import R
from controller.apiserver.storage import Change, Delete, Expected, Put, Storage, Stored
from controller.apiserver.storage.fences import FENCE
from controller.apiserver.storage.values import ABSENT
from controller.common.errors import (
    CompactedError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    StaleError,
    StorageError,
    UnavailableError,
)

T = TypeVar("T")

_PAGE: Final = 500
_TRIES: Final = 8
"""Tries of a write without an expected revision, while others write the same resource."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """Resources as of one revision, sorted by name; `after` is where the next page begins, if there is one."""

    items: tuple[R, ...]
    revision: int
    after: str | None = None


class Registry:
    """Reads and writes resources; `now_ns` is the time since 1970. Raises ApiError, each with one line.

    All writes go through `write`, so that `acknowledged` has those that no watch has delivered yet.
    """

    def __init__(self, storage: Storage, now_ns: Callable[[], int]) -> None:
        self.storage, self.now_ns = storage, now_ns
        self.acknowledged = AcknowledgedWrites[Resource]()
        self._encoded: dict[str, tuple[bytes, Resource]] = {}
        """Last write of each key, until the watch delivers it: so it need not be decoded again."""

    async def get(self, kind: Kind[R], name: str) -> R:
        """Return a resource; raise NotFoundError."""
        with away():
            stored = await self.storage.get(key_of(kind, name))
            if stored is None:
                raise absent(kind, name)
            return decode(kind, stored)

    async def find_all(self, keys: Sequence[str]) -> dict[str, Any]:
        """Return those of several resources that exist, by key."""
        with away():
            existing = await self.storage.get_all(keys)
        return {key: decode(kind, stored) for key, stored in existing.items() if (kind := kind_of(key)) is not None}

    async def list(
        self, kind: Kind[R], selection: Selection = ALL, *, revision: int | None = None, after: str = "", limit: int
    ) -> Listing[R]:
        """Return at most `limit` selected resources after a name; raise GoneError for an old revision."""
        selected: list[R] = []
        start = key_of(kind, after) if after else ""
        with away():
            while True:
                page = await self.storage.scan(prefix_of(kind), revision=revision, after=start, limit=_PAGE)
                revision = page.revision
                for stored in page.items:
                    resource = decode(kind, stored)
                    if not selection.selects(kind, resource):
                        continue
                    if len(selected) == limit:
                        return Listing(tuple(selected), revision, selected[-1].metadata.name)
                    selected.append(resource)
                if not page.more:
                    return Listing(tuple(selected), revision)
                start = page.items[-1].key

    async def create(self, kind: Kind[R], resource: R) -> R:
        """Create a resource; raise StaleError if it exists."""
        metadata = resource.metadata
        if metadata.revision or metadata.uid or metadata.created_ns or metadata.deleting_ns:
            raise InvalidError("metadata: the server sets uid, revision and times of a new resource")
        made = with_metadata(
            fresh(kind, resource), replace(metadata, uid=secrets.token_hex(8), created_ns=self.now_ns())
        )
        key = key_of(kind, metadata.name)
        try:
            revision = await self.write({key: made}, (Expected(key, ABSENT),))
        except ConflictError:
            # Without its revision: it may be another user's.
            raise StaleError(f"{kind.name} {metadata.name} already exists") from None
        return of_revision(made, revision)

    async def change(
        self,
        kind: Kind[R],
        name: str,
        make: Callable[[R], R],
        *,
        expected: int | None = None,
        allow: Callable[[R], None] | None = None,
    ) -> R:
        """Write the result of `make`; raise StaleError if the resource is not at the expected revision.

        Without one, a conflict with other writers repeats `make` on their result. `allow` sees the resource first, and
        raises if the caller may not write it, without revealing its revision.
        """

        async def once() -> R:
            current = await self.get(kind, name)
            if allow is not None:
                allow(current)
            check_revision(kind, current, expected)
            made = make(current)
            if made == current:
                return current
            key = key_of(kind, name)
            return of_revision(made, await self.write({key: made}, (Expected(key, current.metadata.revision),)))

        return await retried(once, f"{kind.name} {name}")

    async def delete(
        self, kind: Kind[R], name: str, *, expected: int | None = None, allow: Callable[[R], None] | None = None
    ) -> R:
        """Delete a resource and return its last state; one that holds a share is marked, and goes once it holds none.

        `allow` sees the resource first, as in `change`.
        """

        async def once() -> R:
            current = await self.get(kind, name)
            if allow is not None:
                allow(current)
            check_revision(kind, current, expected)
            kind.strategy.may_delete(current)
            key = key_of(kind, name)
            expectation = Expected(key, current.metadata.revision)
            is_held = kind.strategy.is_held(current)
            if is_held:
                since = current.metadata.deleting_ns or self.now_ns()
                current = with_metadata(current, replace(current.metadata, deleting_ns=since))
            return of_revision(current, await self.write({key: current if is_held else None}, (expectation,)))

        return await retried(once, f"{kind.name} {name}")

    async def write(self, wanted: Mapping[str, Resource | None], expected: tuple[Expected, ...] = ()) -> int:
        """Set keys to resources, None to delete, all or none; return the revision of the write.

        Raise ConflictError, with nothing written, if a key is not as expected.
        """
        self.acknowledged.check()
        made = {key: None if resource is None else _plain(key, resource) for key, resource in wanted.items()}
        changes = tuple(Delete(key) if encoded is None else Put(key, encoded[0]) for key, encoded in made.items())
        # Before the write, as the watch may deliver it before `transact` returns.
        self._encoded.update((key, encoded) for key, encoded in made.items() if encoded is not None)
        try:
            with away():
                revision = await self._transact(changes, expected)
        except BaseException:
            for key in wanted:
                self._encoded.pop(key, None)
            raise
        for key, encoded in made.items():
            self.acknowledged.note(key, revision, None if encoded is None else of_revision(encoded[1], revision))
        return revision

    async def _transact(self, changes: tuple[Change, ...], expected: tuple[Expected, ...]) -> int:
        """Make changes, of a caller in a pair on the condition that its token is still in force."""
        fence = FENCE.get()
        if fence is None:
            return await self.storage.transact(changes, expected=expected)
        for _ in range(_TRIES):
            more, conditions = await fence.guard(self.storage)
            try:
                return await self.storage.transact((*changes, *more), expected=(*expected, *conditions))
            except ConflictError as error:
                if error.key != fence.key:
                    raise
        raise StaleError(f"lease {fence.name}: too many concurrent writes: try again")

    def forget_encoded(self) -> None:
        """Forget writes that were not delivered: everything is read again."""
        self._encoded.clear()

    def decoded(self, kind: Kind[R], stored: Stored) -> R:
        """Return a resource delivered by the storage's watch: the one written here, else decoded."""
        value, written = self._encoded.pop(stored.key, (b"", None))
        if isinstance(written, kind.type) and value == stored.value:
            return of_revision(written, stored.modified)
        return decode(kind, stored)


async def retried(once: Callable[[], Awaitable[T]], what: str) -> T:
    """Repeat an action that loses races; raise StaleError if it always does."""
    for _ in range(_TRIES):
        try:
            return await once()
        except ConflictError:
            continue
    raise StaleError(f"{what}: too many concurrent writes: try again")


@contextmanager
def away() -> Iterator[None]:
    """Raise UnavailableError for a storage that cannot answer, GoneError for a compacted revision."""
    try:
        yield
    except ConflictError:
        raise
    except CompactedError as error:
        raise GoneError(f"{error}: list again") from None
    except StorageError as error:
        raise UnavailableError(f"the storage does not answer: {error}") from None


def absent(kind: Kind[Any], name: str) -> NotFoundError:
    """Return the error for a resource that does not exist."""
    return NotFoundError(f"there is no {kind.name} {name}")


def check_revision(kind: Kind[R], current: R, expected: int | None) -> None:
    """Raise StaleError if a resource is not at the revision that a writer expects, if any."""
    metadata = current.metadata
    if expected is not None and metadata.revision != expected:
        raise StaleError(f"{kind.name} {metadata.name} is at revision {metadata.revision}, no longer at {expected}")


def with_metadata(resource: R, metadata: Metadata) -> R:
    """Return a resource with other metadata."""
    return replace(resource, metadata=metadata)


def of_revision(resource: R, revision: int) -> R:
    """Return a resource with its last write's revision set."""
    return with_metadata(resource, replace(resource.metadata, revision=revision))


def fresh(kind: Kind[R], resource: R) -> R:
    """Return a resource in its initial state: no shares held, and a pod on no node."""
    return replace(resource, **{name: kind.default(name) for name in kind.initial})


def _plain(key: str, resource: Resource) -> tuple[bytes, Resource]:
    """Return a resource encoded and as stored: control characters in reports, which may quote users, are replaced."""
    data = encode(resource)
    plain, kind = made_plain(data), kind_of(key)
    return plain, resource if plain is data or kind is None else decoded_as(kind, plain)
