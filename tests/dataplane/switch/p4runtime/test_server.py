"""The service as clients see it: finsy and plain gRPC over UNIX sockets, TCP and TLS."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_status

from dataplane.errors import ConfigError, SwitchError
from dataplane.local.deadline import local_timeout
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeServer, TlsFiles
from dataplane.switch.p4runtime import outbox as outbox_module
from dataplane.switch.p4runtime.outbox import Outbox
from tests.certificates import Authority
from tests.waiting import until

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch

PROGRAMS = Path(__file__).parents[2] / "programs"
DEVICE = 7
EOF: object = vars(grpc.aio)["EOF"]
OPTIONS = fy.SwitchOptions(
    p4info=PROGRAMS / "p4rt_entities.p4info.txtpb", p4blob=PROGRAMS / "p4rt_entities.json", device_id=DEVICE
)


def run(job: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with local_timeout(20, "a test"):
            await job()

    asyncio.run(limited())


async def read(sw: Any, wanted: Any) -> list[Any]:
    """Return what finsy reads."""
    return [entity async for entity in sw.read([wanted])]


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Any]:
    """Yield a stub whose calls are asynchronous, for which finsy's stubs have no types."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield p4r_grpc.P4RuntimeStub(channel)


def trailer_of(error: grpc.aio.AioRpcError) -> Any:
    """Return the serialised google.rpc.Status of a failed call, or None."""
    metadata: Any = error.trailing_metadata()
    return dict(metadata or ()).get("grpc-status-details-bin")


def hello(election_id: int) -> p4r.StreamMessageRequest:
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=p4r.Uint128(low=election_id))
    return p4r.StreamMessageRequest(arbitration=update)


def test_finsy_pushes_writes_reads_and_exchanges_packets(
    server: P4RuntimeServer, switch: FakeSwitch, address: str
) -> None:
    async def job() -> None:
        async with fy.Switch("sw1", address, OPTIONS) as sw:
            assert sw.is_primary
            assert switch.program is not None
            entry = fy.P4TableEntry(
                "lpm_table",
                match=fy.Match({"src": 1, "dst": (0x0A0000000000, 8)}),
                action=fy.Action("forward", port=3),
            )
            ternary = fy.P4TableEntry("mixed_table", match=fy.Match({"class": 4}), action=fy.Action("drop"), priority=5)
            await sw.insert([entry, ternary])
            assert await read(sw, fy.P4TableEntry("lpm_table")) == [entry]
            assert len(await read(sw, fy.P4TableEntry())) == 7
            await sw.write([+fy.P4MulticastGroupEntry(1, replicas=[1, 2]), +fy.P4CloneSessionEntry(250, replicas=[3])])
            assert switch.state is not None
            assert set(switch.state.multicast_groups) == {1}
            await sw.write([fy.P4PacketOut(b"\xca\xfe", egress_port=2, pad=0)])
            await until(lambda: bool(switch.packets_out))
            assert switch.packets_out == [bytes.fromhex("0100cafe")]
            waiting = asyncio.ensure_future(anext(aiter(sw.read_packets())))
            await asyncio.sleep(0)  # the queue exists from its first await on
            switch.packet_in(bytes.fromhex("8080beef"))
            packet = await waiting
            assert (packet.payload, packet["ingress_port"], packet["pad"]) == (b"\xbe\xef", 257, 0)
            await sw.delete_all()
            assert len(await read(sw, fy.P4TableEntry())) == 3  # the const ones

    run(job)
    assert server.ports[1] > 0


def test_finsy_sees_each_failure(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with fy.Switch("sw1", address, OPTIONS) as sw:
            entry = fy.P4TableEntry("profile_table", match=fy.Match({"dst": 1}), action=fy.IndirectAction(member_id=1))
            with pytest.raises(fy.P4ClientError) as caught:
                await sw.insert(
                    [fy.P4ActionProfileMember("next_hops", member_id=1, action=fy.Action("drop")), entry, entry]
                )
            assert {index: error.canonical_code.name for index, error in caught.value.details.items()} == {
                2: "ALREADY_EXISTS"
            }

    run(job)


def test_two_finsy_clients_contest_mastership(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with fy.Switch("first", address, OPTIONS) as first:
            assert first.is_primary
            async with fy.Switch("second", address, OPTIONS) as second:  # the same id: finsy bids one less
                assert not second.is_primary
                assert second.election_id == first.election_id - 1
                with pytest.raises(fy.P4ClientError) as caught:
                    await second.write([+fy.P4MulticastGroupEntry(1, replicas=[1])])
                assert caught.value.code.name == "PERMISSION_DENIED"
                assert len(await read(second, fy.P4TableEntry())) == 5
                async with fy.Switch("third", address, OPTIONS(initial_election_id=100)) as third:
                    assert third.is_primary
                    await until(lambda: not first.is_primary)
                    await third.write([+fy.P4MulticastGroupEntry(1, replicas=[1])])
                await until(lambda: any((first.is_primary, second.is_primary)))  # the dead one's id is taken over

    run(job)


def test_the_pipeline_stays_for_the_next_controller(server: P4RuntimeServer, switch: FakeSwitch, address: str) -> None:
    async def job() -> None:
        async with fy.Switch("first", address, OPTIONS) as first:
            await first.write([+fy.P4MulticastGroupEntry(1, replicas=[1])])
        async with fy.Switch("again", address, OPTIONS) as again:
            assert [entry.multicast_group_id for entry in await read(again, fy.P4MulticastGroupEntry())] == [1]
        assert switch.installs == 1

    run(job)


def test_status_details_are_in_the_trailer(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with client(address) as stub:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Write(p4r.WriteRequest(device_id=8))
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND
            assert trailer_of(caught.value) is None
            stream = stub.StreamChannel()
            await stream.write(hello(5))
            await stream.read()
            config = p4r.ForwardingPipelineConfig(p4_device_config=(PROGRAMS / "p4rt_entities.json").read_bytes())
            push = p4r.SetForwardingPipelineConfigRequest(
                device_id=DEVICE,
                election_id=p4r.Uint128(low=5),
                action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.SetForwardingPipelineConfig(push)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            config.p4info.CopyFrom(fy.P4Schema(PROGRAMS / "p4rt_entities.p4info.txtpb").p4info)
            push.config.CopyFrom(config)
            await stub.SetForwardingPipelineConfig(push)
            request = p4r.WriteRequest(device_id=DEVICE, election_id=p4r.Uint128(low=5))
            request.updates.add(type=p4r.Update.INSERT)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Write(request)
            assert caught.value.code() is grpc.StatusCode.UNKNOWN
            trailer = trailer_of(caught.value)
            assert isinstance(trailer, bytes)
            status = rpc_status.Status.FromString(trailer)
            error = p4r.Error()
            assert status.details[0].Unpack(error)
            assert (status.code, error.canonical_code) == (Code.UNKNOWN, Code.INVALID_ARGUMENT)
            assert status.message == caught.value.details()
            await stream.done_writing()
            assert await stream.read() is EOF

    run(job)


def test_streams_end_with_the_right_code(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with client(address) as stub:
            first = stub.StreamChannel()
            await first.write(hello(5))
            await first.read()
            second = stub.StreamChannel()
            await second.write(hello(5))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await second.read()
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.details() == "Election id already exists"
            first.cancel()
            third = stub.StreamChannel()
            await third.write(hello(6))
            answer = await third.read()
            assert answer.arbitration.status.code == 0

    run(job)


def test_a_dead_client_is_noticed(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with client(address) as survivor:
            stream = survivor.StreamChannel()
            async with client(address) as dying:
                primary = dying.StreamChannel()
                await primary.write(hello(9))
                await primary.read()
                await stream.write(hello(4))
                assert (await stream.read()).arbitration.status.code == Code.ALREADY_EXISTS
            assert (await stream.read()).arbitration.status.code == Code.NOT_FOUND

    run(job)


def test_capabilities_over_tcp(server: P4RuntimeServer) -> None:
    async def job() -> None:
        async with client(f"127.0.0.1:{server.ports[1]}") as stub:
            assert (await stub.Capabilities(p4r.CapabilitiesRequest())).p4runtime_api_version == "1.5.0"

    run(job)


def test_stopping_ends_open_streams(core: P4RuntimeCore, address: str) -> None:
    async def job() -> None:
        server = P4RuntimeServer(core, [address])
        server.start()
        async with client(address) as stub:
            stream = stub.StreamChannel()
            await stream.write(hello(5))
            await stream.read()
            await asyncio.to_thread(server.stop)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stream.read()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        server.stop()

    run(job)
    assert not Path(address.removeprefix("unix:")).exists()


def test_stop_without_start_does_nothing(core: P4RuntimeCore, address: str) -> None:
    P4RuntimeServer(core, [address]).stop()


def test_addresses_that_cannot_be_bound(core: P4RuntimeCore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        for wrong in (
            f"127.0.0.1:{taken.getsockname()[1]}",
            "127.0.0.1",
            "127.0.0.1:x",
            "127.0.0.1:70000",
            f"unix:{tmp_path / 'file'}",
            f"unix:{tmp_path / 'none' / 's'}",
            f"unix:{tmp_path / ('x' * 120)}",
        ):
            with pytest.raises(SwitchError) as caught:
                P4RuntimeServer(core, [wrong]).start()
            assert wrong in str(caught.value)
    assert (tmp_path / "file").read_text() == "x"
    assert not [thread for thread in threading.enumerate() if thread.name == "p4runtime"]


def test_a_server_that_fails_to_start_says_so(
    core: P4RuntimeCore, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> grpc.aio.Server:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(grpc.aio, "server", refuse)
    with pytest.raises(SwitchError, match=r"cannot run: .*Too many open files"):
        P4RuntimeServer(core, [address]).start()


def test_a_living_servers_socket_is_not_taken(server: P4RuntimeServer, core: P4RuntimeCore, address: str) -> None:
    with pytest.raises(SwitchError, match="another process listens there"):
        P4RuntimeServer(core, [address]).start()


def test_a_dead_servers_socket_is_taken(core: P4RuntimeCore, address: str) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(address.removeprefix("unix:"))
    with P4RuntimeServer(core, [address]):

        async def job() -> None:
            async with client(address) as stub:
                await stub.Capabilities(p4r.CapabilitiesRequest())

        run(job)


def test_an_outbox_drops_packets_before_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "PACKETS", 2)
    monkeypatch.setattr(outbox_module, "MESSAGES", 3)
    packet = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=b"x"))
    news = p4r.StreamMessageResponse(arbitration=p4r.MasterArbitrationUpdate(device_id=1))

    drops: list[p4r.StreamMessageResponse] = []

    async def job() -> None:
        outbox = Outbox(asyncio.get_running_loop(), drops.append)
        for message in (packet, packet, packet, news):
            outbox.send(message)
        failures = [outbox.failure]
        outbox.send(news)
        failures.append(outbox.failure)
        assert drops == [packet]
        assert [failure and failure.code for failure in failures] == [None, Code.RESOURCE_EXHAUSTED]
        outbox.send(packet)
        assert [await outbox.get() for _ in range(4)] == [packet, packet, news, None]

    run(job)


async def version(port: int, credentials: grpc.ChannelCredentials | None) -> str:
    target = f"localhost:{port}"
    options = [("grpc.enable_http_proxy", 0)]
    channel = (
        grpc.aio.insecure_channel(target, options=options)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, options=options)
    )
    async with channel:
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        answer = await stub.Capabilities(p4r.CapabilitiesRequest(), timeout=10)
        return str(answer.p4runtime_api_version)


def test_tls(core: P4RuntimeCore, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    trusting = grpc.ssl_channel_credentials(authority.file.read_bytes())
    with P4RuntimeServer(core, ["127.0.0.1:0"], TlsFiles(*authority.sign("switch"))) as server:

        async def job() -> None:
            assert await version(server.ports[0], trusting) == "1.5.0"
            with pytest.raises(grpc.aio.AioRpcError):
                await version(server.ports[0], None)

        run(job)


def test_mutual_tls_with_finsy(core: P4RuntimeCore, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path, "ca"), Authority(tmp_path, "stranger")
    certificate, key = authority.sign("controller")
    wrong_certificate, wrong_key = stranger.sign("intruder")
    root = authority.file.read_bytes()
    with P4RuntimeServer(
        core, ["127.0.0.1:0"], TlsFiles(*authority.sign("switch"), client_ca=authority.file)
    ) as server:

        async def job() -> None:
            for credentials in (
                grpc.ssl_channel_credentials(root),
                grpc.ssl_channel_credentials(root, wrong_key.read_bytes(), wrong_certificate.read_bytes()),
            ):
                with pytest.raises(grpc.aio.AioRpcError):
                    await version(server.ports[0], credentials)
            options = OPTIONS(
                channel_credentials=fy.GRPCCredentialsTLS(cacert=authority.file, cert=certificate, private_key=key)
            )
            async with fy.Switch("sw1", f"localhost:{server.ports[0]}", options) as sw:
                assert sw.is_primary

        run(job)


def test_bad_tls_files(core: P4RuntimeCore, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    certificate, key = authority.sign("switch")
    _, other_key = authority.sign("other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not PEM")
    none = tmp_path / "none.pem"
    for files, named in (
        (TlsFiles(none, key), none),
        (TlsFiles(certificate, none), none),
        (TlsFiles(certificate, key, none), none),
        (TlsFiles(garbage, key), garbage),
        (TlsFiles(certificate, garbage), garbage),
        (TlsFiles(certificate, other_key), other_key),
        (TlsFiles(certificate, key, garbage), garbage),
    ):
        with pytest.raises(ConfigError) as caught:
            P4RuntimeServer(core, ["127.0.0.1:0"], files).start()
        assert str(named) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_requests_that_do_not_decode_are_refused_in_our_words(server: P4RuntimeServer, address: str) -> None:
    async def job() -> None:
        async with grpc.aio.insecure_channel(address) as opened:
            channel: Any = opened  # with serialisers or without
            path = "/p4.v1.P4Runtime/"
            unary = channel.unary_unary(path + "Write")(b"\xff")
            stream = channel.unary_stream(path + "Read")(b"\xff")
            session = channel.stream_stream(path + "StreamChannel")(iter([b"\xff"]))
            for call in (unary, stream.read(), session.read()):
                with pytest.raises(grpc.aio.AioRpcError, match="the request does not decode") as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT

    run(job)
