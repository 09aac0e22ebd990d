"""Access to a server over TLS: by certificate, by token, by neither; and the answers to callers without the right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dataplane.errors import AccessError, MillraceError, SwitchError
from dataplane.rpc.access import Right, Role
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.token_files import append_record, read_records
from dataplane.rpc.access.tokens import new_token
from dataplane.rpc.call_errors import reason_of
from dataplane.rpc.channels import RenewingChannel, open_aio_channel
from dataplane.rpc.server import RpcServer
from tests.certificates import DAY, Authority
from tests.dataplane.rpc.echo import ECHO, Echo, Word
from tests.waiting import finish_within

BOUND_S = 60.0
EOF: object = vars(grpc.aio)["EOF"]
WORD = Word(text="a").SerializeToString()
SAY, REPEAT, TALK = "Say", "Repeat", "Talk"
"""Methods that need the right to read, to change and to operate, in this order."""
Ask = Callable[[TlsSettings | None, str], Awaitable[str]]


def serving(
    tls: TlsSettings | None, scene: Callable[[Ask, str], Awaitable[None]], address: str = "127.0.0.1:0"
) -> None:
    """Run a scene with a function that calls a server: settings and a method in, the outcome out."""

    async def run() -> None:
        server = RpcServer(address, [Echo().service], purpose="cannot serve", error=SwitchError, tls=tls)
        await server.start()

        async def ask(client: TlsSettings | None, method: str) -> str:
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with open_aio_channel(server.address, client, options) as channel:
                try:
                    return await called(channel, method)
                except grpc.aio.AioRpcError as error:
                    return f"{error.code().name}: {reason_of(error)}"

        try:
            await scene(ask, server.address)
        finally:
            await server.stop()

    asyncio.run(finish_within(run(), BOUND_S))


async def called(channel: grpc.aio.Channel, method: str) -> str:
    """Call a method of any kind once; return its answer's text."""
    path = f"/{ECHO}/{method}"
    if method == SAY:
        answer: Any = await channel.unary_unary(path, None, None)(WORD)
    elif method == REPEAT:
        answer = await channel.unary_stream(path, None, None)(WORD).read()
    else:
        return await talked(channel.stream_stream(path, None, None))
    return str(Word.FromString(answer).text)


async def talked(talk: Any) -> str:
    """Return the answers of a bidirectional stream, or its refusal.

    If the refusal arrives while the first message is written, gRPC's client reports only an internal error.
    """
    while True:
        stream = talk()
        try:
            await stream.write(WORD)
            answer = await stream.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            answer = EOF
        if answer is not EOF:
            stream.cancel()
            return str(Word.FromString(answer).text)
        if (code := await stream.code()) is not grpc.StatusCode.INTERNAL:
            return f"{code.name}: {await stream.details()}"


def test_each_role_may_do_what_it_may_and_no_more(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    reader = authority.settings("ann", Role.USER)
    changer = authority.settings("bob", Role.USER, None, Right.CHANGE)
    operator = authority.settings("eve", Role.USER, None, Right.OPERATE)
    worker = authority.settings("w1", Role.WORKER, "h1")
    node = authority.settings("n1", Role.NODE, "n1")
    admin = authority.settings("root", Role.ADMIN)

    async def scene(ask: Ask, _: str) -> None:
        allowed = {
            reader: (SAY,),
            changer: (SAY, REPEAT),
            operator: (SAY, REPEAT, TALK),
            admin: (SAY, REPEAT, TALK),
            worker: (),
            node: (),
        }
        for tls, methods in allowed.items():
            for method in (SAY, REPEAT, TALK):
                answer = await ask(tls, method)
                assert answer == "a" if method in methods else answer.startswith("PERMISSION_DENIED: "), (
                    method,
                    answer,
                )
        text = "PERMISSION_DENIED: ann (user) may not call Talk: that needs the permission to operate"
        assert await ask(reader, TALK) == text
        text = "PERMISSION_DENIED: w1 (worker h1) may not call Say: that needs the permission to read"
        assert await ask(worker, SAY) == text

    serving(authority.settings("service"), scene)


def test_strangers_are_refused_with_a_reason(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = (str(file) for file in authority.sign("old", -DAY))
    late = TlsSettings(ca=str(authority.file), certificate=certificate, private_key=key)
    unmarked = authority.settings("somebody", None)
    foreign = other.settings("service")
    intruder = msgspec.structs.replace(foreign, ca=str(authority.file))
    trusting_others = msgspec.structs.replace(authority.settings("ann", Role.USER), ca=str(other.file))

    async def scene(ask: Ask, _: str) -> None:
        assert await ask(unmarked, SAY) == (
            "UNAUTHENTICATED: this certificate has no role (urn:millrace:role:...) among its names"
        )
        hung_up = "UNAVAILABLE: it hangs up at once: it takes TLS, or no TLS, or a certificate of another authority"
        assert await ask(intruder, SAY) == hung_up
        assert await ask(TlsSettings(ca=str(authority.file)), SAY) == hung_up
        assert await ask(None, SAY) == hung_up  # plain, on loopback
        assert "no certificate of our authority" in await ask(trusting_others, SAY)
        with pytest.raises(AccessError, match=r"old\.crt expired on"):
            await ask(late, SAY)

    serving(authority.settings("service"), scene)


def test_a_server_takes_an_expired_client_for_nobody(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("old", -DAY)

    async def scene(_: Ask, address: str) -> None:
        parts = authority.file.read_bytes(), key.read_bytes(), certificate.read_bytes()
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*parts)) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await called(channel, SAY)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    serving(authority.settings("service"), scene)


def test_personal_certificate_cannot_pose_as_a_service(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ann = authority.settings("ann", Role.USER)

    async def scene(ask: Ask, _: str) -> None:
        assert "no certificate of our authority" in await ask(authority.settings("bob", Role.USER), SAY)

    serving(ann, scene)


def test_tokens_in_place_of_certificates(tmp_path: Path) -> None:
    authority, records = Authority(tmp_path), tmp_path / "tokens"
    served = msgspec.structs.replace(authority.settings("service"), tokens=str(records))

    def token(name: str, *rights: Right, ended: bool = False) -> TlsSettings:
        text, record = new_token(name, Role.USER, None, now_ns=0, expires_ns=1 if ended else None, rights=tuple(rights))
        append_record(records, record)
        file = tmp_path / name
        file.touch(mode=0o600)
        file.write_text(text)
        return TlsSettings(ca=str(authority.file), token_file=str(file))

    reader, operator, late = token("ann"), token("eve", Right.OPERATE), token("old", ended=True)
    assert records.stat().st_mode & 0o077 == 0

    async def scene(ask: Ask, _: str) -> None:
        assert await ask(reader, SAY) == "a"
        assert await ask(operator, TALK) == "a"
        assert (await ask(reader, REPEAT)).startswith("PERMISSION_DENIED: ann (user) may not call Repeat")
        assert (await ask(late, SAY)).startswith("UNAUTHENTICATED: token ")
        nobody = TlsSettings(ca=str(authority.file))
        assert await ask(nobody, SAY) == "UNAUTHENTICATED: a bearer token is needed"
        kept = read_records(records)
        records.write_text("")  # revoked
        assert await ask(reader, SAY) == "UNAUTHENTICATED: this token is unknown, or was revoked"
        for record in kept.values():
            append_record(records, record)
        assert await ask(reader, SAY) == "a"
        (tmp_path / "ann").chmod(0o644)
        with pytest.raises(AccessError, match=r"ann is readable by others; chmod 600"):
            await ask(reader, SAY)

    serving(served, scene)
    records.write_text("{}\n")
    with pytest.raises(AccessError, match=r"tokens:1: Object missing required field"):
        serving(served, scene)


@pytest.mark.parametrize("method", [SAY, REPEAT])
def test_strangers_are_refused_before_they_have_said_anything(tmp_path: Path, method: str) -> None:
    """Otherwise each could occupy a call, and have a request of maximum size read and parsed."""
    authority, records = Authority(tmp_path), tmp_path / "tokens"
    append_record(records, new_token("ann", Role.USER, None, now_ns=0, expires_ns=None, rights=())[1])
    served = msgspec.structs.replace(authority.settings("service"), tokens=str(records))

    async def scene(_: Ask, address: str) -> None:
        async with open_aio_channel(address, TlsSettings(ca=str(authority.file)), []) as channel:
            call: Any = channel.stream_stream(f"/{ECHO}/{method}", None, None)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call().read()
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    serving(served, scene)


def test_health_is_told_to_whoever_may_connect(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    worker = authority.settings("w1", Role.WORKER, "h1")

    async def scene(_: Ask, address: str) -> None:
        async with open_aio_channel(address, worker, []) as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING

    serving(authority.settings("service"), scene)


def test_renewed_files_are_used_without_a_restart(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    served, ann = authority.settings("service"), authority.settings("ann", Role.USER)
    new = Authority(tmp_path / "new")

    async def scene(ask: Ask, _: str) -> None:
        assert await ask(ann, SAY) == "a"
        fresh = new.settings("service")
        for old, made in ((served.private_key, fresh.private_key), (served.certificate, fresh.certificate)):
            Path(str(old)).write_bytes(Path(str(made)).read_bytes())
        assert "no certificate of our authority" in await ask(ann, SAY)
        assert await ask(msgspec.structs.replace(ann, ca=str(new.file)), SAY) == "a"
        Path(str(served.certificate)).write_text("garbage")
        assert await ask(msgspec.structs.replace(ann, ca=str(new.file)), SAY) == "a"  # the settings in use stay

    serving(served, scene)


def test_a_client_shows_its_renewed_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    ann = authority.settings("ann", Role.USER)
    fresh = authority.settings("eve", Role.USER, None, Right.OPERATE)

    async def scene(_: Ask, address: str) -> None:
        channel = RenewingChannel(address, ann, [("grpc.use_local_subchannel_pool", 1)])
        before = await channel.current()
        assert "permission to operate" in await called(before, TALK)
        Path(str(ann.certificate)).write_text("garbage")
        assert await channel.current() is before  # which goes on
        for old, made in ((ann.private_key, fresh.private_key), (ann.certificate, fresh.certificate)):
            Path(str(old)).write_bytes(Path(str(made)).read_bytes())
        assert await called(await channel.current(), TALK) == "a"
        assert await called(before, SAY) == "a"
        await channel.close()

    serving(authority.settings("service"), scene)


def test_a_unix_socket_is_its_users_and_asks_for_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def scene(ask: Ask, _: str) -> None:
        assert await ask(None, TALK) == "a"

    with TemporaryDirectory(prefix="rpc") as folder:
        serving(authority.settings("service"), scene, f"unix:{folder}/s")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:1", "somewhere.example:1"])
def test_plaintext_beyond_loopback_needs_an_explicit_address(address: str, tmp_path: Path) -> None:
    async def never(_: Ask, __: str) -> None:
        raise AssertionError

    # An address of no interface is reported as such; the others are refused for their kind.
    with pytest.raises(SwitchError, match=r"not loopback, and there is no tls.*plain:|not known|[Nn]ame|assign"):
        serving(None, never, address)
    needs = Authority(tmp_path)
    with pytest.raises(MillraceError, match="needs certificate and private_key"):
        serving(TlsSettings(ca=str(needs.file)), never, "0.0.0.0:0")  # half of the needed settings


def test_plain_is_served_where_it_is_said() -> None:
    async def scene(ask: Ask, address: str) -> None:
        assert address.startswith("plain:0.0.0.0:")
        assert await ask(None, TALK) == "a"

    serving(None, scene, "plain:0.0.0.0:0")
