"""The folder of a user's sockets: path, creation, and refusals, on both sides."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.errors import CollectorError, FeedError
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from dataplane.clock import VirtualClock
from dataplane.rpc import own_folder
from dataplane.rpc.own_folder import default_address, foreign_socket, is_own_peer, own_folders, prepare, refusal
from tests.collectors.reports import build_topology


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a runtime folder of this user's, with a short name."""
    with TemporaryDirectory(prefix="run") as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name)


async def serve(address: str) -> int:
    """Serve a feed and ask it; return the mode of its folder."""
    server = FeedServer(Collector(build_topology(), VirtualClock(0)), FeedSettings(address=address))
    await server.start()
    try:
        async with FeedClient(FeedClientSettings(address=address)) as client:
            await client.status()
        return stat.S_IMODE(Path(address.removeprefix("unix:")).parent.stat().st_mode)
    finally:
        await server.stop()


def test_runtime_folder_is_preferred_and_private(runtime: Path) -> None:
    assert own_folders()[0] == runtime / "millrace"
    address = default_address("collector")
    assert address == f"unix:{runtime}/millrace/collector.sock"
    assert asyncio.run(serve(address)) == 0o700


@pytest.mark.parametrize("named", ["", "relative", "/nowhere/at/all"])
def test_without_a_runtime_folder_there_are_others(named: str) -> None:
    folders = own_folders({"XDG_RUNTIME_DIR": named})
    assert folders == own_folders({})
    assert not any(folder.is_relative_to("/tmp") for folder in folders)


@pytest.mark.root
def test_system_folder_is_roots_or_its_given_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_folder, "_SYSTEM", tmp_path)
    system = tmp_path / "millrace"
    assert system in own_folders({})  # not created yet
    system.mkdir(mode=0o700)
    assert system in own_folders({})
    os.chown(system, 12345, 12345)  # a daemon's, as systemd makes it
    assert system not in own_folders({})
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    with as_user(12345):
        assert system in own_folders({})
    with as_user(54321):  # without any folder the error says why
        assert own_folders({}) == (system,)
        assert refusal(system) == f"folder {system} belongs to user 12345, not to user 54321"


def test_existing_socket_is_found_in_any_folder(tmp_path: Path) -> None:
    best, other = tmp_path / "best", tmp_path / "other"
    assert default_address("paths", (best, other)) == f"unix:{best}/paths.sock"
    other.mkdir()
    (other / "paths.sock").touch()
    assert default_address("paths", (best, other)) == f"unix:{other}/paths.sock"


def test_a_folder_that_may_not_be_looked_into_has_no_socket(tmp_path: Path) -> None:
    system, own = tmp_path / "system", tmp_path / "own"
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)
    system.mkdir(0o700)
    with as_user(54321):
        assert default_address("jobs", (own, system)) == f"unix:{own}/jobs.sock"


def test_a_folder_that_lets_others_in_is_refused_on_both_sides(runtime: Path) -> None:
    (runtime / "millrace").mkdir()
    (runtime / "millrace").chmod(0o755)
    _refused_on_both_sides("is open to others; chmod 700")


def test_a_link_is_refused_on_both_sides(runtime: Path) -> None:
    (runtime / "elsewhere").mkdir(mode=0o700)
    (runtime / "millrace").symlink_to(runtime / "elsewhere")
    _refused_on_both_sides("is not a folder")


@pytest.mark.root
def test_a_folder_of_somebody_else_is_refused_on_both_sides(runtime: Path) -> None:
    (runtime / "millrace").mkdir(mode=0o700)
    os.chown(runtime / "millrace", 12345, 12345)
    _refused_on_both_sides("belongs to user 12345, not to user 0")


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """Run as another user."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.root
def test_a_socket_of_somebody_else_is_refused_by_clients(runtime: Path) -> None:
    path = runtime / "s"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        os.chown(path, 12345, 12345)
        assert foreign_socket(path) is None  # root may talk to others' daemons, where only root could have put them
        runtime.chmod(0o777)
        assert foreign_socket(path) == "it belongs to user 12345, not to user 0"
        with pytest.raises(FeedError, match="it belongs to user 12345, not to user 0"):
            asyncio.run(_ask(f"unix:{path}"))
        with as_user(12345):
            assert foreign_socket(path) is None
        with as_user(54321):
            assert foreign_socket(path) == "it belongs to user 12345, not to user 54321"
        os.chown(path, 0, 0)
        with as_user(54321):
            assert foreign_socket(path) is None


@pytest.mark.root
def test_who_connects_is_known_by_the_kernel(runtime: Path) -> None:
    path = runtime / "s"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(path))
        server.listen()
        path.chmod(0o777)
        runtime.chmod(0o777)
        for user, is_own in ((0, True), (12345, False)):
            with closing(socket.socket(socket.AF_UNIX)) as client:
                with as_user(user):
                    client.connect(str(path))
                with closing(server.accept()[0]) as connection:
                    assert is_own_peer(connection) == is_own


def test_a_folder_in_the_users_own_makes_that_one_his_alone(runtime: Path) -> None:
    assert prepare(runtime / "millrace" / "up-1") is None
    for folder in (runtime / "millrace", runtime / "millrace" / "up-1"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (runtime / "millrace").chmod(0o755)
    assert prepare(runtime / "millrace" / "up-2") == (
        f"folder {runtime}/millrace is open to others; chmod 700 {runtime}/millrace"
    )


def test_what_stands_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert prepare(tmp_path / "file") == f"{tmp_path}/file is not a folder"
    assert prepare(tmp_path / "file" / "millrace") is not None
    assert refusal(tmp_path / "not" / "there") is None


async def _ask(address: str) -> None:
    async with FeedClient(FeedClientSettings(address=address)) as client:
        await client.status()


def _refused_on_both_sides(why: str) -> None:
    address = default_address("collector")
    with pytest.raises(CollectorError, match=why) as serving:
        asyncio.run(serve(address))

    with pytest.raises(FeedError, match=why) as asking:
        asyncio.run(_ask(address))
    assert "\n" not in str(serving.value) + str(asking.value)
