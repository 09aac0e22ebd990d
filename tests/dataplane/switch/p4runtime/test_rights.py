"""A switch over TLS: rights of readers, writers, operators and the controller in P4Runtime and gNMI."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from finsy.proto import gnmi, gnmi_grpc, p4r, p4r_grpc

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.rpc.access import Right, Role
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.token_files import append_record
from dataplane.rpc.access.tokens import new_token
from dataplane.rpc.channels import open_aio_channel
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeServer, TlsFiles
from dataplane.switch.switch import PortSettings, Switch
from tests.certificates import Authority
from tests.waiting import finish_within

BOUND_S = 60.0
MISSING = "that needs the permission to"
NEEDS = {
    "Read": "read",
    "GetForwardingPipelineConfig": "read",
    "Capabilities": "read",
    "gnmi.Get": "read",
    "gnmi.Subscribe": "read",
    "Write": "change",
    "StreamChannel": "change",
    "SetForwardingPipelineConfig": "operate",
    "gnmi.Set": "operate",
}


def served(tls: TlsFiles) -> P4RuntimeServer:
    switch = Switch(1, [PortSettings(1)], VirtualClock())
    return P4RuntimeServer(P4RuntimeCore(switch), ["127.0.0.1:0"], tls, beside=[GnmiService(GnmiCore(switch))])


async def end_of(channel: grpc.aio.Channel, method: str) -> str:
    """Return a call's error, none on success; only missing rights matter."""
    p4, gn = _untyped(p4r_grpc.P4RuntimeStub(channel)), _untyped(gnmi_grpc.gNMIStub(channel))
    requests: Mapping[str, Any] = {
        "Read": lambda: p4.Read(p4r.ReadRequest(device_id=1)).read(),
        "GetForwardingPipelineConfig": lambda: p4.GetForwardingPipelineConfig(
            p4r.GetForwardingPipelineConfigRequest(device_id=1)
        ),
        "Capabilities": lambda: p4.Capabilities(p4r.CapabilitiesRequest()),
        "Write": lambda: p4.Write(p4r.WriteRequest(device_id=1)),
        "SetForwardingPipelineConfig": lambda: p4.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(device_id=1)
        ),
        "StreamChannel": lambda: _first(p4.StreamChannel(), _HELLO),
        "gnmi.Get": lambda: gn.Get(gnmi.GetRequest()),
        "gnmi.Set": lambda: gn.Set(gnmi.SetRequest()),
        "gnmi.Subscribe": lambda: _first(gn.Subscribe(), gnmi.SubscribeRequest()),
    }
    while True:
        try:
            await requests[method]()
        except grpc.aio.AioRpcError as error:
            if error.details() == _OVERTAKEN:
                continue
            return f"{error.code().name}: {error.details()}"
        return ""


_OVERTAKEN = "Internal error from Core"
"""gRPC's error text, in place of the reason, when a message meets a stream that is being refused."""
_HELLO = p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(device_id=1, election_id=p4r.Uint128(low=1)))


def _untyped(stub: Any) -> Any:
    return stub


async def _first(stream: Any, message: Any) -> None:
    await stream.write(message)
    await stream.read()
    stream.cancel()


def allowed(server: P4RuntimeServer, tls: TlsSettings) -> set[str]:
    """Return the effective permissions of a caller."""

    async def ask() -> dict[str, str]:
        async with open_aio_channel(f"127.0.0.1:{server.ports[0]}", tls, []) as channel:
            return {method: await end_of(channel, method) for method in NEEDS}

    ends = asyncio.run(finish_within(ask(), BOUND_S))
    assert not any(end.startswith(("UNAVAILABLE", "UNAUTHENTICATED")) for end in ends.values()), ends
    denied = {method for method, end in ends.items() if MISSING in end}  # a non-primary is denied, too
    rights = {NEEDS[method] for method in ends.keys() - denied}
    assert rights.isdisjoint(NEEDS[method] for method in denied), ends
    return rights


def test_reading_writing_and_operating_are_three_rights(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    people = {
        authority.settings("ann", Role.USER): {"read"},
        authority.settings("bob", Role.USER, None, Right.CHANGE): {"read", "change"},
        authority.settings("eve", Role.USER, None, Right.OPERATE): {"read", "change", "operate"},
        authority.settings("controller"): {"read", "change", "operate"},
        authority.settings("unmarked", None): {"read", "change", "operate"},  # as at simple_switch_grpc
        authority.settings("w1", Role.WORKER, "h1"): set(),
        authority.settings("c1", Role.CENTRE, "c1"): set(),
    }
    with served(TlsFiles(*authority.sign("switch"), client_ca=authority.file)) as server:
        for tls, permissions in people.items():
            assert allowed(server, tls) == permissions, tls.certificate


def test_tokens_do_it_too(tmp_path: Path) -> None:
    authority, records = Authority(tmp_path), tmp_path / "tokens"
    token, record = new_token("ann", Role.USER, None, now_ns=0, expires_ns=None, rights=(Right.CHANGE,))
    append_record(records, record)
    file = tmp_path / "token"
    file.touch(mode=0o600)
    file.write_text(token)
    with served(TlsFiles(*authority.sign("switch"), tokens=records)) as server:
        assert allowed(server, TlsSettings(ca=str(authority.file), token_file=str(file))) == {"read", "change"}
        nobody = TlsSettings(ca=str(authority.file))

        async def ask() -> str:
            async with open_aio_channel(f"127.0.0.1:{server.ports[0]}", nobody, []) as channel:
                return await end_of(channel, "Capabilities")

        assert asyncio.run(ask()) == "UNAUTHENTICATED: a bearer token is needed"


def test_plaintext_beyond_loopback_needs_a_plain_address() -> None:
    core = P4RuntimeCore(Switch(1, [PortSettings(1)], VirtualClock()))
    with pytest.raises(SwitchError, match=r"cannot listen on 0\.0\.0\.0:0: it is not loopback, and there is no tls"):
        P4RuntimeServer(core, ["0.0.0.0:0"]).start()
    with P4RuntimeServer(core, ["plain:0.0.0.0:0"]) as server:
        assert server.ports[0] > 0
