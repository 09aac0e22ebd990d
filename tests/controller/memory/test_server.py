"""The server of blocks against callers that it must not trust: certificates, roles, silence, floods, nonsense."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from controller.memory.connections import Caller, client_context
from controller.memory.errors import HostDownError, MemoryPoolError, RefusedError
from controller.memory.frame_server import FrameLimits
from controller.memory.frames import Frame, Kind
from controller.memory.host.server import Host
from controller.memory.host.settings import HostSettings
from controller.memory.host.store import Store
from controller.memory.messages import Claim, Run, encoded
from controller.memory.pool.deciding import Decider, rule_of
from controller.memory.pool.pool import MemoryPool
from controller.memory.pool.settings import MemoryPoolSettings, PoolHost
from controller.memory.pool.values import Request
from dataplane.errors import ConfigError
from dataplane.rpc.access import Role
from dataplane.rpc.access.settings import TlsSettings
from tests.certificates import Authority
from tests.controller.memory.machines import BLOCK, COMPUTER, Machine, content
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@contextmanager
def served(settings: HostSettings) -> Iterator[Host]:
    with Store(settings) as store, Host(settings, store, COMPUTER) as host:
        yield host


@pytest.fixture
def over_tls(tmp_path: Path, authority: Authority) -> Iterator[Host]:
    """Yield a host on loopback that takes three callers at a time who have not authenticated."""
    settings = Machine("h1").settings(tmp_path, "127.0.0.1:0")
    limits = FrameLimits(unauthenticated=3, handshake_ns=600_000_000_000)
    with served(msgspec.structs.replace(settings, tls=authority.settings("h1"), limits=limits)) as host:
        yield host


def caller(host: Host, tls: TlsSettings) -> Caller:
    return Caller(host.address, client_context(tls), within_s=10, name="h1")


def test_pool_over_tls_moves_blocks_between_hosts(tmp_path: Path, authority: Authority) -> None:
    """Hosts show certificates of the role node to one another, and the pool one of the role service."""
    with ExitStack() as stack:
        hosts = []
        for name in ("h1", "h2"):
            tls = authority.settings(name)
            settings = Machine(name).settings(tmp_path, "127.0.0.1:0")
            host = stack.enter_context(served(msgspec.structs.replace(settings, tls=tls)))
            hosts.append(PoolHost(name=name, address=host.address))
        pool_settings = MemoryPoolSettings(hosts=tuple(hosts), tls=authority.settings("pool"))
        pool = stack.enter_context(MemoryPool(pool_settings, Decider(rule_of("lru"))))
        for key in range(4):
            pool.write(key, content(key))
        assert pool.run(Request(reads=(0, 1, 2, 3))).remote_bytes == 2 * BLOCK
        assert [pool.read(key) for key in range(4)] == [content(key) for key in range(4)]


def test_only_certificates_of_the_authority_are_taken(over_tls: Host, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    theirs = stranger.settings("pool")
    with pytest.raises(RefusedError, match="h1: its certificate: "):
        caller(over_tls, theirs)
    mixed = msgspec.structs.replace(theirs, ca=str(authority.file))
    with pytest.raises(MemoryPoolError, match="h1: "), caller(over_tls, mixed) as it:
        it.call(Frame(Kind.STATUS))
    bare = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    bare.load_verify_locations(str(authority.file))
    with pytest.raises(MemoryPoolError, match="h1: "), Caller(over_tls.address, bare, within_s=10, name="h1") as it:
        it.call(Frame(Kind.STATUS))


def test_roles_decide_what_a_caller_may_do(over_tls: Host, authority: Authority) -> None:
    with caller(over_tls, authority.settings("other", Role.NODE, "h2")) as node:
        assert node.call(Frame(Kind.STATUS)).body
        for frame in (
            Frame(Kind.WRITE, 1, 1, 1, content(1)),
            Frame(Kind.FREE, 1, 1, 1),
            Frame(Kind.RUN, body=encoded(Run())),
            Frame(Kind.LIST),
            Frame(Kind.HELLO, body=encoded(Claim(pool="mine"))),
        ):
            with pytest.raises(RefusedError, match="other has the role node, which may only read blocks"):
                node.call(frame)
    for role in (Role.USER, None):
        with pytest.raises(HostDownError), caller(over_tls, authority.settings("user", role)) as user:
            user.call(Frame(Kind.STATUS))
    wait_until(lambda: over_tls.server.counts["AccessError"] == 2)


def test_callers_without_a_handshake_are_few(over_tls: Host, authority: Authority) -> None:
    host, _, port = over_tls.address.rpartition(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(3)]
    wait_until(lambda: over_tls.server._waiting == 3)
    with pytest.raises(HostDownError):
        caller(over_tls, authority.settings("pool"))
    assert over_tls.server.counts["too many unauthenticated connections"] == 1
    for connection in silent:
        connection.close()
    wait_until(lambda: over_tls.server._waiting == 0)
    with caller(over_tls, authority.settings("pool")) as it:
        assert it.call(Frame(Kind.STATUS)).body


@pytest.mark.parametrize("begun", [b"", b"MRB1\x02"])
def test_silent_and_slow_callers_lose_their_place(tmp_path: Path, begun: bytes) -> None:
    limits = FrameLimits(frame_ns=50_000_000, idle_ns=50_000_000)
    with served(msgspec.structs.replace(Machine("h1").settings(tmp_path), limits=limits)) as host:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(host.address.removeprefix("unix:"))
            connection.sendall(begun)
            connection.settimeout(60)
            assert connection.recv(1) == b""
        wait_until(lambda: host.server.counts["TimeoutError"] == 1)


def test_nonsense_ends_its_connection_alone(tmp_path: Path) -> None:
    with served(Machine("h1").settings(tmp_path)) as host:
        for nonsense in (b"GET / HTTP/1.1\r\nHost: memory.example\r\n\r\n", b"\0" * 40, b"MRB1" + b"\xff" * 28):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(host.address.removeprefix("unix:"))
                connection.sendall(nonsense)
                connection.settimeout(30)
                # A reset if some of it was not read.
                with suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
        assert host.server.counts["WireError"] == 3
        with Caller(host.address, None, within_s=10) as good:
            with pytest.raises(RefusedError, match="there is no tier 9, only 2"):
                good.call(Frame(Kind.READ, 9))
            with pytest.raises(RefusedError, match="not a body of Run"):
                good.call(Frame(Kind.RUN, body=b"{"))
            assert good.call(Frame(Kind.STATUS)).body


def test_address_without_protection_is_refused(tmp_path: Path) -> None:
    settings = Machine("h1").settings(tmp_path, "127.0.0.1:0")
    with (
        Store(settings) as store,
        pytest.raises(ConfigError, match=r"127\.0\.0\.1:0: HOST:PORT needs tls, on loopback"),
    ):
        Host(settings, store, COMPUTER)
    with pytest.raises(RefusedError, match="needs tls"):
        Caller("127.0.0.1:7900", None, within_s=1)


def test_socket_is_its_users_alone(tmp_path: Path) -> None:
    with served(Machine("h1").settings(tmp_path)):
        assert (tmp_path / "h1.sock").stat().st_mode & 0o777 == 0o600


def test_handshake_has_little_time(tmp_path: Path, authority: Authority) -> None:
    settings = Machine("h1").settings(tmp_path, "127.0.0.1:0")
    limits = FrameLimits(handshake_ns=50_000_000)
    with served(msgspec.structs.replace(settings, tls=authority.settings("h1"), limits=limits)) as host:
        address, _, port = host.address.rpartition(":")
        with socket.create_connection((address, int(port))) as silent:
            silent.settimeout(60)
            assert silent.recv(1) == b""
