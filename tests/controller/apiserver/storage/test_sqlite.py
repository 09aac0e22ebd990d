"""Failures that only file storage must withstand: a killed process, a full disk, another process using it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.apiserver.storage import Put
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.common.errors import LeaseError, StorageError
from tests.soak.storage import soak


def test_nothing_acknowledged_is_lost_when_its_process_is_killed() -> None:
    report = soak(kills=8, seed=5)
    assert report.problems == []
    assert report.acknowledged > 8


def test_second_process_is_refused_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "storage")

    async def act() -> None:
        async with await SqliteStorage.open(path) as storage:
            await storage.put("/a", b"")
            with pytest.raises(StorageError, match=rf"{path}: cannot open the storage: process \d+ has it"):
                await SqliteStorage.open(path)

    asyncio.run(act())


def test_writes_survive_a_restart_and_leases_are_renewed(tmp_path: Path) -> None:
    path = str(tmp_path / "storage")

    async def before() -> tuple[int, int]:
        async with await SqliteStorage.open(path) as storage:
            lease = await storage.grant(30)
            await storage.put("/kept", b"1")
            return await storage.put("/leased", b"1", lease=lease.number), lease.number

    async def after(revision: int, lease: int) -> None:
        async with await SqliteStorage.open(path) as storage:
            assert await storage.revision() == revision
            await storage.renew(lease)
            events = storage.watch("/", after=0)
            [made], [leased] = await anext(events), await anext(events)
            assert (made.key, leased.key, leased.revision) == ("/kept", "/leased", revision)
            await storage.revoke(lease)
            with pytest.raises(LeaseError):
                await storage.renew(lease)
            assert [item.key for item in (await storage.scan("/")).items] == ["/kept"]

    asyncio.run(after(*asyncio.run(before())))


def test_lagging_watch_catches_up_from_the_file(tmp_path: Path) -> None:
    async def act() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            for start in range(0, 12_000, 500):
                await asyncio.gather(*(storage.put(f"/{number}", b"") for number in range(start, start + 500)))
            seen = 0
            async for events in storage.watch("/", after=0):
                seen += len(events)
                if seen == 12_000:
                    return

    asyncio.run(act())


def test_closed_storage_is_an_error(tmp_path: Path) -> None:
    async def act() -> None:
        storage = await SqliteStorage.open(str(tmp_path / "storage"))
        waiting = asyncio.ensure_future(anext(storage.watch("/", after=0)))
        await asyncio.sleep(0)
        await storage.close()
        with pytest.raises(StorageError, match="the storage is closed"):
            await waiting
        with pytest.raises(StorageError, match="the storage is closed"):
            await storage.put("/a", b"")

    asyncio.run(act())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of half a mebibyte."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


async def fill(storage: SqliteStorage) -> None:
    """Write until it fails."""
    number = 0
    while True:
        await storage.put(f"/{number:03}", bytes(20_000))
        number += 1


@pytest.mark.root
def test_full_disk_is_reported_and_recovered_from(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(250_000))
    path = str(small_disk / "storage")
    value = bytes(20_000)

    async def act() -> None:
        async with await SqliteStorage.open(path) as storage:
            with pytest.raises(StorageError, match=f"{path}: cannot write the storage: .*full"):
                await fill(storage)
            revision = await storage.revision()
            written = len((await storage.scan("/")).items)
            assert revision == written > 0
            with pytest.raises(StorageError, match="full"):
                await storage.transact(tuple(Put(f"/x{number}", value) for number in range(8)))
            assert len((await storage.scan("/")).items) == written
            ballast.unlink()
            assert await storage.put("/after", value) == revision + 1

    asyncio.run(act())
