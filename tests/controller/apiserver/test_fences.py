"""Callers and servers in pairs: who is no longer active changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.resources import Metadata, Project
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.common.errors import ForbiddenError, InvalidError, NotFoundError, StaleError, StorageError
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served


def project(name: str) -> Project:
    return Project(metadata=Metadata(name=name))


def test_lower_token_changes_nothing(play: Play) -> None:
    async def act(served: Served) -> None:
        def paired(fence: str) -> ApiClient:
            return ApiClient(Place(served.socket), tries=1, fence=lambda: fence)

        async with paired("scheduler 5") as first, paired("scheduler 6") as second, paired("other 1") as other:
            await first.of(Project).create(project("a"))
            await first.of(Project).create(project("b"))
            await second.of(Project).create(project("c"))
            with pytest.raises(StaleError, match="lease scheduler: token 5 is no longer in force, 6 is"):
                await first.of(Project).create(project("d"))
            with pytest.raises(StaleError, match="token 5"):
                await first.of(Project).delete("a")
            await second.of(Project).delete("b")
            await other.of(Project).create(project("e"))
            with pytest.raises(NotFoundError):
                await second.of(Project).get("d")
            assert (await first.of(Project).get("a")).metadata.name == "a"  # reading needs no lease

    play(act)


def test_parallel_writes_under_a_new_token_all_succeed(play: Play) -> None:
    async def act(served: Served) -> None:
        async with ApiClient(Place(served.socket), tries=1, fence=lambda: "scheduler 9") as client:
            await asyncio.gather(*(client.of(Project).create(project(f"p{number}")) for number in range(8)))

    play(act)


def test_only_services_run_in_pairs(play: Play) -> None:
    async def act(served: Served) -> None:
        made = await served.client_of(Role.USER)
        made._fence = lambda: "scheduler 99"
        async with made as user:
            with pytest.raises(ForbiddenError, match="Millrace-Fence: only services run in pairs"):
                await user.of(Project).delete("a")
        async with ApiClient(Place(served.socket), tries=1, fence=lambda: "x") as client:
            with pytest.raises(InvalidError, match="Millrace-Fence: 'x' is not a name and a token"):
                await client.of(Project).create(project("a"))

    play(act)


def test_storage_refuses_commits_under_a_lower_token(tmp_path: Path) -> None:
    async def act() -> None:
        path = str(tmp_path / "storage")
        async with await SqliteStorage.open(path, 3) as old:
            await old.put("/a", b"old")
            async with await SqliteStorage.open(path, 7) as new:
                written = await new.put("/a", b"new")
                with pytest.raises(StorageError, match="another API server is active: token 3 is not"):
                    await old.put("/a", b"older")
                with pytest.raises(StorageError, match="token 3 is not"):
                    await old.put("/b", b"older")
                stored = await new.get("/a")
                assert stored is not None
                assert (stored.value, stored.modified) == (b"new", written)
                assert await new.get("/b") is None
            with pytest.raises(StorageError, match="token 6 is lower than 7"):
                await SqliteStorage.open(path, 6)

    asyncio.run(act())
