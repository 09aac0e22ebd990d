"""The API's connections: addresses, invalid calls, and limits of clients."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING

import pytest
from thrift.Thrift import TApplicationException
from thrift.transport.TTransport import TTransportException

from dataplane.clock import VirtualClock
from dataplane.errors import SwitchError
from dataplane.switch.runtime_api.api import serve
from dataplane.switch.runtime_api.server import ApiLimits
from dataplane.switch.runtime_api.services import SERVICES
from dataplane.switch.switch import Switch
from tests.dataplane.switch.runtime_api.conftest import Client

if TYPE_CHECKING:
    from collections.abc import Mapping


def test_it_listens_on_loopback_and_says_which_port_is_taken(switch: Switch) -> None:
    with serve(switch, 0) as port:
        with pytest.raises(SwitchError, match=f"--thrift-port {port}: .* is taken"), serve(switch, port):
            pass
        with socket.create_connection(("127.0.0.1", port)) as connection:
            assert connection.getpeername()[0] == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_every_method_is_answered_by_one_of_ours(client: Client) -> None:
    for service, methods in SERVICES.items():
        speaking = client.of(service)
        for name, method in methods.items():
            if not method.arguments:
                continue
            with pytest.raises(TApplicationException, match="argument 1 is missing"):
                speaking.call(name, *[None] * len(method.arguments))


def test_methods_that_there_are_not_are_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    methods: Mapping[str, object] = {**SERVICES["standard"], "bm_fly": SERVICES["standard"]["bm_swap_configs"]}
    monkeypatch.setattr("tests.dataplane.switch.runtime_api.conftest.SERVICES", {"standard": methods})
    with pytest.raises(TApplicationException, match="there is no method standard:bm_fly"):
        client.bm_fly()
    client.bm_mgmt_get_info()  # the connection goes on


def test_a_switch_without_a_program_says_so() -> None:
    with serve(Switch(1, [], VirtualClock()), 0) as port, Client(port) as client:
        with pytest.raises(TApplicationException, match="no program yet"):
            client.bm_get_config()
        with pytest.raises(TApplicationException, match="no program yet"):
            client.bm_mt_get_num_entries(0, "t")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x80\x01\x00\x01\x7f\xff\xff\xff",  # a name of two gigabytes
        b"\x80\x01\x00\x01\x00\x00\x00\x01x\x00\x00\x00\x00" + b"\x0c\x00\x01" * 5_000,  # structs within structs
        b"\x80\x01\x00\x01\x00\x00\x00\x0fbm_mt_add_entry\x00\x00\x00\x00" + b"\x0f\x00\x03\x0c\x7f\xff\xff\xff",
        b"\x80\x01\x00\x02\x00\x00\x00\x01x\x00\x00\x00\x00\x00",  # an answer
    ],
)
def test_what_is_no_call_ends_the_connection(switch: Switch, data: bytes) -> None:
    with serve(switch, 0) as port, Client(port) as other:
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while part := _received(connection):
                received += part
            assert len(received) < 200
        other.bm_mgmt_get_info()


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionResetError:
        return b""


def test_limits(switch: Switch) -> None:
    limits = ApiLimits(connections=2, message_bytes=1_000, first_s=0.05, message_s=0.05)
    with serve(switch, 0, limits) as port, Client(port) as first:
        first.bm_mgmt_get_info()
        with socket.create_connection(("127.0.0.1", port), 20) as silent:
            assert _received(silent) == b""  # it said nothing for too long
        with socket.create_connection(("127.0.0.1", port), 20) as slow:
            slow.sendall(struct.pack("!i", -0x7FFEFFFF))
            assert _received(slow) == b""
        with pytest.raises(TTransportException), Client(port) as long:
            long.bm_load_new_config("x" * 2_000)
        first.bm_mgmt_get_info()  # one that has spoken may be silent


def test_another_connection_than_may_be_is_closed(switch: Switch) -> None:
    with serve(switch, 0, ApiLimits(connections=1)) as port, Client(port) as first:
        first.bm_mgmt_get_info()
        with socket.create_connection(("127.0.0.1", port), 20) as second:
            assert _received(second) == b""
        first.bm_mgmt_get_info()
