"""Jobs and containers at a socket of their agent's user: refused under any user id."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.resources import Node
from dataplane.cgroup_limits import make_group, remove_empty
from dataplane.rpc.own_folder import is_own_peer
from dataplane.rpc.peers import refusal_of_peer, refusal_of_process
from tests.controller.apiserver.api_server import serving, settings_in

CONNECT = """
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
print("connected", flush=True)
sys.stdin.read()
"""


@contextmanager
def as_user(user: int) -> Iterator[None]:
    """Run as another user for a while."""
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def connected(listening: socket.socket, *before: str) -> Iterator[socket.socket]:
    """Yield a connection from another process, which is started by some words."""
    command = [*before, "/usr/bin/python3", "-I", "-S", "-c", CONNECT, listening.getsockname()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n", before
        connection, _ = listening.accept()
        with connection:
            yield connection
        process.communicate()


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[socket.socket]:
    """A socket open to everyone."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        yield listener


def test_a_process_of_ones_own_is_let_in(listening: socket.socket) -> None:
    with connected(listening) as connection:
        assert refusal_of_peer(connection) is None
        assert is_own_peer(connection)


@pytest.mark.root
@pytest.mark.parametrize(
    ("before", "problem"),
    [
        (("unshare", "--pid", "--fork"), "it is in a PID namespace of its own"),
        (("unshare", "--user", "--map-current-user"), "it is in a user namespace of its own"),
    ],
)
def test_a_process_in_namespaces_is_refused(listening: socket.socket, before: tuple[str, ...], problem: str) -> None:
    with connected(listening, *before) as connection:
        assert refusal_of_peer(connection) == problem
        assert not is_own_peer(connection)


@pytest.mark.root
def test_a_process_in_a_jobs_control_group_is_refused(listening: socket.socket) -> None:
    path = f"/millrace/centres/test-{os.getpid()}/job"
    group = make_group(path)
    try:
        files = [str(folder / "cgroup.procs") for folder in set(group.folders.values())]
        joins = 'for file in "$@"; do [ "$file" = -- ] && break; echo $$ > "$file"; shift; done; shift; exec "$@"'
        with connected(listening, "sh", "-c", joins, "sh", *files, "--") as connection:
            assert refusal_of_peer(connection) == f"its control group is {path}"
    finally:
        remove_empty(path)
        remove_empty(str(Path(path).parent))


def test_a_process_that_has_ended_is_refused(listening: socket.socket) -> None:
    command = [sys.executable, "-I", "-S", "-c", CONNECT, listening.getsockname()]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    connection, _ = listening.accept()
    with connection:
        assert refusal_of_peer(connection) == "its process has ended"


def test_a_process_that_cannot_be_looked_into_is_refused() -> None:
    own = os.getpid()
    assert refusal_of_process(own, is_root=False) is None
    assert refusal_of_process(own, is_root=False, root=Path("/nowhere")) == "its process has ended"
    assert refusal_of_process(0, is_root=True) == "its process is in a PID namespace that cannot be looked into"


@pytest.mark.root
def test_root_is_let_in_where_its_processes_are_hidden(listening: socket.socket) -> None:
    """As they are from daemons of other users, by ProtectProc= of their units."""
    with connected(listening) as connection, as_user(12345):
        assert refusal_of_peer(connection) is None
        assert refusal_of_process(os.getpid(), is_root=True, root=Path("/nowhere")) is None


@pytest.mark.root
def test_the_api_gives_no_job_its_users_rights(tmp_path: Path) -> None:
    ask = """
import socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    try:
        connection.sendall(b"GET /v1/nodes HTTP/1.1\\r\\nHost: api\\r\\n\\r\\n")
        print(connection.recv(100)[:15])
    except OSError:
        print(b"")
"""

    async def asked(path: str, *before: str) -> bytes:
        words = (*before, "/usr/bin/python3", "-I", "-S", "-c", ask, path)
        process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        return (await process.communicate())[0].strip()

    async def main() -> None:
        async with serving(settings_in(tmp_path), tmp_path) as served:
            path = served.socket.removeprefix("unix:")
            async with ApiClient(Place(served.socket), tries=1) as client:
                assert (await client.of(Node).list()).items == ()
            assert await asked(path) == b"b'HTTP/1.1 200 OK'"
            assert await asked(path, "unshare", "--user", "--map-current-user") == b"b''"
            assert await asked(path, "unshare", "--pid", "--fork") == b"b''"

    asyncio.run(main())
