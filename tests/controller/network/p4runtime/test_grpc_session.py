"""The asynchronous session against the built-in switch's P4Runtime server on a UNIX socket."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from finsy import P4TableAction, P4TableEntry, P4TableMatch
from msgspec.structs import replace

from controller.common.errors import ControllerError, SessionError
from controller.network.gnmi.queries import read_ports
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.reconcile import diff
from controller.network.tables.entities import Update, Verb, key_of
from dataplane.clock import VirtualClock
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.tls import TlsFiles, files_of
from dataplane.switch import bmv2
from dataplane.switch.arguments import SwitchSettings
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.switch import PortSettings, Switch
from dataplane.topology.values import Topology
from tests.black_hole import BlackHole
from tests.certificates import Authority
from tests.controller.network.base_tables import base_entities
from tests.waiting import finish_within, until

BOUND_S = 20.0


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty switch with device id 1."""
    switch = Switch(1, [PortSettings(number) for number in range(1, 5)], VirtualClock())
    address = f"unix:{tmp_path}/p4rt.sock"
    with P4RuntimeServer(P4RuntimeCore(switch), [address]):
        yield address


def session(address: str, *, election_id: int = 10, device_id: int = 1) -> GrpcSession:
    """Return a session that is not yet connected."""
    schema = load_schema(*fabric_program())
    return GrpcSession(Target("a", address, device_id), schema, election_id=election_id, timeout_s=BOUND_S)


def test_written_entries_read_back_equal(address: str, diamond: Topology) -> None:
    async def run() -> None:
        client = session(address)
        await client.connect()
        try:
            assert await client.install_pipeline()
            assert not await client.install_pipeline()
            desired = base_entities(diamond)["a"]
            for batch in diff(desired, await client.read()):
                await client.write(batch)
            assert diff(desired, await client.read()) == []
            assert (await client.read()).keys() == desired.keys()
        finally:
            await client.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_a_refused_update_is_named(address: str) -> None:
    def logged() -> list[str]:
        # With a server's loop in the same process, gRPC's poller may log errors of its own.
        return [record.getMessage() for record in caplog.records if record.name.startswith("millrace")]

    async def run() -> None:
        client = session(address)
        await client.connect()
        await client.install_pipeline()
        entry = P4TableEntry("punt", match=P4TableMatch(ether_type=1), action=P4TableAction("send_to_cpu"))
        update = Update(Verb.INSERT, key_of(entry), entry)
        await client.write((update,))
        with pytest.raises(SessionError) as caught:
            await client.write((update,))
        assert caught.value.refused == (0,)
        assert str(caught.value).startswith("switch a: write: ALREADY_EXISTS: insert entry punt ether_type=0x1: ")
        await client.close()
        with pytest.raises(SessionError, match="switch a: write: the session is closed"):
            await client.write((update,))

    asyncio.run(finish_within(run(), BOUND_S))


def test_ignored_stream_messages_are_logged_once_per_kind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    switch, address = Switch(1, [PortSettings(1)], clock), f"unix:{tmp_path}/p4rt.sock"

    def logged() -> list[str]:
        # With a server's loop in the same process, gRPC's poller may log errors of its own.
        return [record.getMessage() for record in caplog.records if record.name.startswith("millrace")]

    async def run() -> None:
        client = session(address)
        await client.connect()
        await client.install_pipeline()
        entry = P4TableEntry("punt", match=P4TableMatch(ether_type=1), action=P4TableAction("send_to_cpu"))
        await client.write((Update(Verb.INSERT, key_of(entry), entry),))
        for _ in range(3):
            switch.receive(1, (bytes(12) + b"\x00\x01" + bytes(50),))
            clock.advance_to(clock.now_ns() + 1_000_000)
            switch.advance(clock.now_ns())
        await until(lambda: bool(logged()))
        assert await client.read()  # a round trip
        await client.close()

    with P4RuntimeServer(P4RuntimeCore(switch), [address]):
        asyncio.run(finish_within(run(), BOUND_S))
    assert logged() == ["switch a: ignored a stream message (packet): nothing here asked for it"]


def test_a_switch_that_answers_no_more_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, hung = P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock())), threading.Event()
    address = f"unix:{tmp_path}/p4rt.sock"

    async def run() -> None:
        client = GrpcSession(Target("a", address, 1), load_schema(*fabric_program()), probe_s=0.01, timeout_s=2)
        await client.connect()
        monkeypatch.setattr(core, "capabilities", lambda _: hung.wait())
        assert str(await client.wait_lost()).startswith("switch a: probe: DEADLINE_EXCEEDED: ")
        hung.set()
        await client.close()

    with P4RuntimeServer(core, [address]):
        asyncio.run(finish_within(run(), BOUND_S))


def test_switch_behind_a_black_hole_is_lost() -> None:
    core = P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock()))

    async def run(way: BlackHole) -> None:
        client = GrpcSession(Target("a", way.address, 1), load_schema(*fabric_program()), probe_s=0.01, timeout_s=2)
        await client.connect()
        way.swallow()
        cause = f"DEADLINE_EXCEEDED: no answer from {way.address} within 2 s"
        assert str(await client.wait_lost()) == f"switch a: probe: {cause}"
        await client.close()

    with P4RuntimeServer(core, ["127.0.0.1:0"]) as server, BlackHole(server.ports[0]) as way:
        asyncio.run(finish_within(run(way), BOUND_S))


def test_unreachable_address_is_an_error_naming_the_switch(tmp_path: Path) -> None:
    async def run() -> None:
        client = session(f"unix:{tmp_path}/nobody.sock")
        with pytest.raises(SessionError, match="switch a: connect: UNAVAILABLE: "):
            await client.connect()
        await client.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_another_device_id_is_refused(address: str) -> None:
    async def run() -> None:
        client = session(address, device_id=9)
        with pytest.raises(SessionError, match="switch a: connect: NOT_FOUND: there is no device 9 here"):
            await client.connect()
        await client.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_equal_election_id_is_refused_with_advice(address: str) -> None:
    async def run() -> None:
        one, two = session(address, election_id=7), session(address, election_id=7)
        await one.connect()
        message = (
            r"switch a: become primary: INVALID_ARGUMENT: .* already exists: .* also have election id 7; set another"
        )
        with pytest.raises(SessionError, match=message):
            await two.connect()
        await two.close()
        await one.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_a_higher_bid_takes_over_and_the_loser_returns_as_backup(address: str) -> None:
    async def run() -> None:
        low, high = session(address, election_id=1), session(address, election_id=2)
        await low.connect()
        await high.connect()
        assert str(await low.wait_lost()) == "switch a: listen: another controller became primary"
        await low.close()
        backup = session(address, election_id=1)
        waiting = asyncio.create_task(backup.connect())
        done, _ = await asyncio.wait((waiting,), timeout=0.05)
        assert not done
        await high.close()
        await waiting
        await backup.install_pipeline()
        await backup.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_a_switch_that_stops_ends_the_session(tmp_path: Path) -> None:
    async def run() -> None:
        address = f"unix:{tmp_path}/p4rt.sock"
        server = P4RuntimeServer(P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock())), [address])
        server.start()
        client = session(address)
        await client.connect()
        await client.install_pipeline()
        await asyncio.to_thread(server.stop)
        assert (await client.wait_lost()).switch == "a"
        with pytest.raises(SessionError, match="switch a: read: "):
            await client.read()
        await client.close()

    asyncio.run(finish_within(run(), BOUND_S))


def test_close_during_a_call_is_an_error_not_a_cancellation(address: str) -> None:
    async def run() -> None:
        client = session(address)
        await client.connect()
        await client.install_pipeline()
        reading = asyncio.create_task(client.read())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(SessionError, match="switch a: read: "):
            await reading

    asyncio.run(finish_within(run(), BOUND_S))


@contextmanager
def _built_in(tls: TlsFiles, folder: Path) -> Iterator[str]:
    del folder
    core = P4RuntimeCore(Switch(1, [PortSettings(number) for number in range(1, 5)], VirtualClock()))
    with P4RuntimeServer(core, ["127.0.0.1:0"], tls) as server:
        yield f"127.0.0.1:{server.ports[0]}"


@contextmanager
def _bmv2(tls: TlsFiles, folder: Path) -> Iterator[str]:
    if not bmv2.is_installed():
        pytest.skip("needs simple_switch_grpc on the PATH")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = SwitchSettings(
        ports=(), device_id=1, grpc_address=address, tls=tls, log_level="off", log_file=folder / "log"
    )
    with bmv2.Bmv2Process(settings) as process:
        process.wait_ready()
        yield address


@pytest.mark.parametrize("served", [_built_in, pytest.param(_bmv2, marks=pytest.mark.bmv2)])
def test_mutual_tls_works_and_everything_less_is_an_error(
    served: Callable[[TlsFiles, Path], AbstractContextManager[str]], tmp_path: Path, diamond: Topology
) -> None:
    authority = Authority(tmp_path)
    both = replace(authority.settings("controller"), server_name="localhost")
    anonymous = TlsSettings(ca=str(authority.file), server_name="localhost")
    unreadable = TlsSettings(ca=str(tmp_path / "nothing.pem"))
    stranger = replace(Authority(tmp_path, "another").settings("controller"), server_name="localhost")
    stranger = replace(stranger, ca=str(authority.file))

    @asynccontextmanager
    async def connected(address: str, tls: TlsSettings | None) -> AsyncIterator[GrpcSession]:
        client = GrpcSession(Target("a", address, 1), load_schema(*fabric_program()), tls=tls, timeout_s=10.0)
        try:
            await client.connect()
            yield client
        finally:
            await client.close()

    async def run(address: str) -> None:
        async with connected(address, both) as client:
            await client.install_pipeline()
            desired = base_entities(diamond)["a"]
            for batch in diff(desired, await client.read()):
                await client.write(batch)
            assert list(diff(desired, await client.read())) == []
        for less in (anonymous, stranger, None):
            with pytest.raises(SessionError, match="switch a: connect: "):
                async with connected(address, less):
                    pass
        with pytest.raises(SessionError, match=r"switch a: connect: .*nothing\.pem"):
            async with connected(address, unreadable):
                pass

    with served(files_of(authority.settings("switch")), tmp_path) as address:
        asyncio.run(asyncio.wait_for(run(address), 3 * BOUND_S))


def test_a_switch_elsewhere_is_not_controlled_in_the_open() -> None:
    async def run() -> None:
        session = GrpcSession(Target("a", "192.0.2.1:9559", 1), load_schema(*fabric_program()))
        with pytest.raises(SessionError, match=r"switch a: connect: 192.0.2.1:9559: it is not loopback"):
            await session.connect()
        with pytest.raises(ControllerError, match=r"switch at '192.0.2.1:9559': it is not loopback"):
            await read_ports("192.0.2.1:9559")

    asyncio.run(finish_within(run(), BOUND_S))


def test_gnmi_shares_address_and_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    switch = Switch(1, [PortSettings(1)], VirtualClock())
    both = replace(authority.settings("controller"), server_name="localhost")
    anonymous = TlsSettings(ca=str(authority.file), server_name="localhost")
    missing = TlsSettings(ca=str(tmp_path / "nothing.pem"))

    async def run(address: str) -> None:
        assert [state.port for state in await read_ports(address, both)] == [1]
        refused = (anonymous, "it hangs up at once")
        for less, text in (refused, (None, ""), (missing, "TLS")):
            with pytest.raises(ControllerError, match=f"switch at {address}: .*({text})"):
                await read_ports(address, less)

    tls = files_of(authority.settings("switch"))
    beside = [GnmiService(GnmiCore(switch))]
    with P4RuntimeServer(P4RuntimeCore(switch), ["127.0.0.1:0"], tls, beside=beside) as server:
        asyncio.run(finish_within(run(f"127.0.0.1:{server.ports[0]}"), BOUND_S))
