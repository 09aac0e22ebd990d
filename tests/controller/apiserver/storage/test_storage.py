"""Behaviour common to all storages, whichever backend keeps the keys."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from controller.apiserver.storage import Delete, Event, EventKind, Expected, Put, Storage
from controller.apiserver.storage.etcd import EtcdSettings, EtcdStorage
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.common.errors import CompactedError, ConflictError, LeaseError, StorageError
from dataplane.local.deadline import local_timeout

T = TypeVar("T")
WAIT_S = 20.0
Run = Callable[[Callable[[Storage], Awaitable[T]]], T]


@asynccontextmanager
async def opened(address: str | None, folder: Path) -> AsyncIterator[Storage]:
    """Open SQLite's storage, or etcd's at an address, with keys of its own."""
    if address is None:
        storage: Storage = await SqliteStorage.open(str(folder / "storage"))
    else:
        storage = EtcdStorage(EtcdSettings(address, root=f"/{secrets.token_hex(8)}"))
    async with storage:
        yield storage


@pytest.fixture(params=["sqlite", "etcd"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run[object]:
    address = None if request.param == "sqlite" else request.getfixturevalue("etcd")

    def play(act: Callable[[Storage], Awaitable[T]]) -> T:
        async def main() -> T:
            async with local_timeout(WAIT_S, "a test"), opened(address, tmp_path) as storage:
                return await act(storage)

        return asyncio.run(main())

    return play


async def first(events: AsyncIterator[tuple[Event, ...]], count: int = 1) -> list[tuple[Event, ...]]:
    return [await anext(events) for _ in range(count)]


def test_a_key_is_written_read_changed_and_removed(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        assert await storage.get("/a") is None
        made = await storage.put("/a", b"one")
        assert await storage.revision() == made
        changed = await storage.put("/a", b"two")
        stored = await storage.get("/a")
        assert stored is not None
        assert (stored.value, stored.created, stored.modified, stored.version) == (b"two", made, changed, 2)
        old = await storage.get("/a", revision=made)
        assert old is not None
        assert (old.value, old.version) == (b"one", 1)
        gone = await storage.delete("/a")
        assert await storage.get("/a") is None
        assert await storage.get("/a", revision=gone) is None
        again = await storage.put("/a", b"three")
        assert (await storage.get("/a")) == type(stored)("/a", b"three", again, again, 1)

    run(act)


def test_removing_a_missing_key_changes_nothing(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        before = await storage.put("/a", b"")
        assert await storage.delete("/b") == before
        assert await storage.revision() == before

    run(act)


def test_key_is_swapped_only_if_as_expected(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        made = await storage.put("/a", b"one", expected=0)
        with pytest.raises(ConflictError, match="/a: already exists"):
            await storage.put("/a", b"x", expected=0)
        changed = await storage.put("/a", b"two", expected=made)
        with pytest.raises(ConflictError) as caught:
            await storage.delete("/a", expected=made)
        assert (caught.value.key, caught.value.expected) == ("/a", made)
        stored = await storage.get("/a")
        assert stored is not None
        assert (stored.value, stored.modified) == (b"two", changed)

    run(act)


def test_a_transaction_is_done_whole_or_not_at_all(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        base = await storage.put("/node", b"4 free")
        conditions = (Expected("/node", base), Expected("/pod", 0))
        done = await storage.transact((Put("/node", b"3 free"), Put("/pod", b"here")), expected=conditions)
        assert [item.modified for item in (await storage.scan("/")).items] == [done, done]
        with pytest.raises(ConflictError):
            await storage.transact((Put("/node", b"2 free"), Delete("/pod")), expected=conditions)
        assert [item.value for item in (await storage.scan("/")).items] == [b"3 free", b"here"]

    run(act)


def test_concurrent_increments_all_count(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        await storage.put("/count", b"0")

        async def count_up() -> None:
            while True:
                stored = await storage.get("/count")
                assert stored is not None
                try:
                    await storage.put("/count", b"%d" % (int(stored.value) + 1), expected=stored.modified)
                except ConflictError:
                    continue
                return

        await asyncio.gather(*(count_up() for _ in range(20)))
        stored = await storage.get("/count")
        assert stored is not None
        assert (stored.value, stored.version) == (b"20", 21)

    run(act)


def test_keys_come_in_pages_of_one_revision(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        for name in ("/pods/b", "/pods/a", "/pods/é", "/pods/c", "/podsx", "/nodes/a"):
            await storage.put(name, name.encode())
        page = await storage.scan("/pods/", limit=2)
        assert ([item.key for item in page.items], page.more) == (["/pods/a", "/pods/b"], True)
        await storage.delete("/pods/c")
        await storage.put("/pods/b2", b"")
        rest = await storage.scan("/pods/", revision=page.revision, after="/pods/b", limit=2)
        assert ([item.key for item in rest.items], rest.more) == (["/pods/c", "/pods/é"], False)
        now = await storage.scan("/pods/")
        assert [item.key for item in now.items] == ["/pods/a", "/pods/b", "/pods/b2", "/pods/é"]

    run(act)


def test_watch_sees_everything_once_and_in_order(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        start = await storage.put("/pods/a", b"1")
        events = storage.watch("/pods/", after=start)
        two = await storage.transact((Put("/pods/a", b"2"), Put("/pods/b", b"2"), Put("/nodes/a", b"2")))
        await storage.put("/nodes/b", b"3")
        three = await storage.delete("/pods/a")
        [both, gone] = await first(events, 2)
        assert {(event.kind, event.key, event.revision) for event in both} == {
            (EventKind.PUT, "/pods/a", two),
            (EventKind.PUT, "/pods/b", two),
        }
        assert [(event.kind, event.key, event.revision, event.stored) for event in gone] == [
            (EventKind.DELETE, "/pods/a", three, None)
        ]
        waiting = asyncio.ensure_future(first(events))
        await asyncio.sleep(0)
        await storage.put("/pods/c", b"4")
        [[event]] = await waiting
        assert event.stored is not None
        assert (event.key, event.stored.value) == ("/pods/c", b"4")

    run(act)


def test_a_lease_that_is_not_renewed_takes_its_keys_along(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        short, long = await storage.grant(1), await storage.grant(60)
        start = await storage.put("/short", b"", lease=short.number)
        await storage.put("/long", b"", lease=long.number)
        await storage.put("/kept", b"", lease=short.number)
        await storage.put("/kept", b"")  # it stays without a lease
        [[event]] = await first(storage.watch("/short", after=start))
        assert (event.kind, event.key) == (EventKind.DELETE, "/short")
        assert [item.key for item in (await storage.scan("/")).items] == ["/kept", "/long"]
        with pytest.raises(LeaseError):
            await storage.renew(short.number)
        with pytest.raises(LeaseError):
            await storage.put("/x", b"", lease=short.number)
        await storage.renew(long.number)
        await storage.revoke(long.number)
        assert await storage.get("/long") is None

    run(act)


def test_compaction_forgets_history_and_keeps_state(run: Run[None]) -> None:
    async def act(storage: Storage) -> None:
        old = await storage.put("/a", b"1")
        await storage.put("/gone", b"")
        middle = await storage.put("/a", b"2")
        await storage.delete("/gone")
        newest = await storage.put("/b", b"3")
        await storage.compact(newest)
        with pytest.raises(CompactedError):
            await storage.get("/a", revision=old)
        with pytest.raises(CompactedError):
            await storage.scan("/", revision=middle)
        with pytest.raises(CompactedError):
            await anext(storage.watch("/", after=old))
        stored = await storage.get("/a", revision=newest)
        assert stored is not None
        assert stored.value == b"2"
        assert [item.key for item in (await storage.scan("/")).items] == ["/a", "/b"]

    run(act)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ((Put("", b""),), "a key must have 1 to 512 bytes"),
        ((Put("a\0b", b""),), "a key must have 1 to 512 bytes"),
        ((Put("x" * 513, b""),), "a key must have 1 to 512 bytes"),
        ((Put("\ud800", b""),), "a key must have 1 to 512 bytes"),
        ((Put("/a", bytes((1 << 20) + 1)),), "/a: a value may have at most"),
        ((Put("/a", b""), Delete("/a")), "may change a key at most once"),
        (tuple(Put(f"/{number}", b"") for number in range(129)), "at most 128 changes"),
    ],
)
def test_invalid_keys_and_values_are_refused(run: Run[None], changes: tuple[Put, ...], problem: str) -> None:
    async def act(storage: Storage) -> None:
        with pytest.raises(StorageError, match=problem):
            await storage.transact(changes)

    run(act)
