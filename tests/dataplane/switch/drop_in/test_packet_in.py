"""Packets as messages: a nanomsg PAIR socket, ours on both sides, and nanomsg's own library where it is installed."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dataplane.errors import PortError
from dataplane.nic import NicPort, memory_pair
from dataplane.switch.drop_in.packet_in import HEAD, Kind, PacketIn
from dataplane.switch.drop_in.sp import GREETING, LONGEST_MESSAGE
from tests.waiting import wait_until

ROOT = Path(__file__).parents[4]
PROGRAM = ROOT / "tests" / "dataplane" / "programs" / "copies.json"
DEADLINE_S = 20.0
AF_SP, PAIR = 1, 16


def packet(port: int, frame: bytes) -> bytes:
    return HEAD.pack(Kind.PACKET_IN, port, len(frame)) + frame


class Peer:
    """The other side of the pair, on the wire."""

    def __init__(self, address: str) -> None:
        kind, _, target = address.partition("://")
        self._mark = b"\x01" if kind == "ipc" else b""
        if kind == "ipc":
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(target)
        else:
            host, _, port = target.rpartition(":")
            self._socket = socket.create_connection((host, int(port)))
        self._socket.settimeout(DEADLINE_S)
        self._socket.sendall(GREETING)
        assert self._take(len(GREETING)) == GREETING

    def send(self, message: bytes) -> None:
        self._socket.sendall(self._mark + struct.pack(">Q", len(message)) + message)

    def receive(self) -> bytes:
        head = self._take(len(self._mark) + 8)
        assert head.startswith(self._mark)
        return self._take(int.from_bytes(head[len(self._mark) :], "big"))

    def close(self) -> None:
        self._socket.close()

    def _take(self, nbytes: int) -> bytes:
        data = b""
        while len(data) < nbytes:
            more = self._socket.recv(nbytes - len(data))
            assert more, "the other side has closed"
            data += more
        return data


@contextmanager
def listening(address: str) -> Iterator[tuple[PacketIn, dict[int, NicPort]]]:
    """Yield what listens, and the near end of each port."""
    cables = {number: memory_pair(slots=16) for number in (1, 2)}
    with PacketIn(address, {number: far for number, (_, far) in cables.items()}) as messages:
        yield messages, {number: near for number, (near, _) in cables.items()}
    for ends in cables.values():
        for end in ends:
            end.close()


def test_a_sockets_path_is_its_users_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with listening(f"ipc://{tmp_path}/p"):
            assert stat.S_IMODE((tmp_path / "p").stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.mark.parametrize("kind", ["ipc", "tcp"])
def test_packets_go_both_ways_and_another_peer_may_follow(kind: str, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/p" if kind == "ipc" else f"tcp://127.0.0.1:{free_port()}"
    with listening(address) as (messages, ports):
        for _ in range(2):
            peer = Peer(address)
            peer.send(HEAD.pack(Kind.PORT_ADD, 1, 0))
            peer.send(packet(1, b"a" * 60))
            peer.send(packet(2, b"b" * 1500))
            received: dict[int, list[bytes]] = {1: [], 2: []}

            def arrived(received: dict[int, list[bytes]] = received) -> bool:
                for number, port in ports.items():
                    received[number] += port.receive(8)
                return all(received.values())

            wait_until(arrived, "packets are missing")
            assert received == {1: [b"a" * 60], 2: [b"b" * 1500]}
            assert ports[2].send([b"c" * 70]) == 1
            assert peer.receive() == HEAD.pack(Kind.PACKET_OUT, 2, 70) + b"c" * 70
            peer.send(HEAD.pack(Kind.INFO_REQ, 1, 1))
            assert peer.receive() == HEAD.pack(Kind.INFO_REP, 1, 1) + struct.pack("=i", 1)
            peer.close()
        assert messages.dropped == 0


def test_malformed_messages_and_unknown_ports_are_counted(tmp_path: Path) -> None:
    with listening(f"ipc://{tmp_path}/p") as (messages, ports):
        peer = Peer(f"ipc://{tmp_path}/p")
        for message in (
            packet(7, b"x" * 60),
            b"short",
            HEAD.pack(Kind.PACKET_IN, 1, 61) + b"x" * 60,
            packet(1, b"y" * 60),
        ):
            peer.send(message)
        wait_until(lambda: ports[1].receive(8) == [b"y" * 60], "the good one is missing")
        assert messages.dropped == 3
        peer.close()


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", GREETING + b"\x02" * 20, GREETING + b"\x01" + b"\xff" * 8])
def test_foreign_protocol_is_closed_and_the_next_peer_is_heard(sent: bytes, tmp_path: Path) -> None:
    with listening(f"ipc://{tmp_path}/p") as (_, ports):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.settimeout(DEADLINE_S)
            stranger.connect(f"{tmp_path}/p")
            stranger.sendall(sent)
            answer = stranger.recv(64)
            assert answer == GREETING
            assert stranger.recv(64) == b""
        peer = Peer(f"ipc://{tmp_path}/p")
        peer.send(packet(1, b"y" * 60))
        wait_until(lambda: ports[1].receive(8) == [b"y" * 60], "the next peer is not heard")
        peer.close()


def test_a_pair_is_two_and_nobody_is_counted(tmp_path: Path) -> None:
    with listening(f"ipc://{tmp_path}/p") as (messages, ports):
        assert ports[1].send([bytes(60)]) == 1
        wait_until(lambda: messages.dropped == 1, "a packet that nobody takes is not counted")
        first = Peer(f"ipc://{tmp_path}/p")
        first.send(HEAD.pack(Kind.INFO_REQ, 1, 1))
        first.receive()
        with socket.socket(socket.AF_UNIX) as second:
            second.settimeout(DEADLINE_S)
            second.connect(f"{tmp_path}/p")
            assert second.recv(64) == b""
        first.close()


def test_who_connects_and_says_nothing_keeps_nobody_out(tmp_path: Path) -> None:
    with listening(f"ipc://{tmp_path}/p") as (_, ports):
        with socket.socket(socket.AF_UNIX) as silent:
            silent.settimeout(DEADLINE_S)
            silent.connect(f"{tmp_path}/p")
            assert silent.recv(64) == GREETING
            peer = Peer(f"ipc://{tmp_path}/p")
            assert silent.recv(64) == b""
        peer.send(packet(1, b"y" * 60))
        wait_until(lambda: ports[1].receive(8) == [b"y" * 60], "the peer that speaks is not heard")
        peer.close()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("/tmp/x", "neither ipc"),
        ("ipc:///nonexistent/x", "no folder"),
        ("plain:tcp://here:x", "neither"),
        ("plain:tcp://*:99999", "neither"),
        ("tcp://*:9000", "anyone who connects can inject packets; if that is intended, call it plain:tcp://"),
        ("tcp://10.0.0.1:9000", "is not loopback"),
    ],
)
def test_where_nothing_can_listen(address: str, problem: str) -> None:
    with pytest.raises(PortError, match=problem):
        PacketIn(address, {})


def test_a_switch_whose_ports_are_messages(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/p"
    argv = [
        sys.executable,
        "-m",
        "dataplane.switch.process",
        str(PROGRAM),
        "--packet-in",
        address,
        "-i",
        "1@a",
        "-i",
        "2@b",
    ]
    argv += ["--pipeline", "interpreter", "--ready-file", str(tmp_path / "ready")]
    argv += ["--", "--grpc-server-addr", f"unix:{tmp_path}/p4.sock"]
    with subprocess.Popen(argv, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)}) as process:
        try:
            wait_until(lambda: (tmp_path / "ready").exists() or process.poll() is not None, "never ready")
            peer = Peer(address)
            frame = bytes(14) + b"x" * 50
            peer.send(packet(1, frame))
            # copies.p4 sends what asks for nothing to port 2, with 12 bytes in front.
            out = peer.receive()
            assert HEAD.unpack_from(out) == (Kind.PACKET_OUT, 2, len(frame) + 12)
            assert out[HEAD.size + 12 :] == frame
            peer.close()
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()


def test_nanomsgs_own_library_understands_it(tmp_path: Path) -> None:
    library = ctypes.util.find_library("nanomsg")
    if library is None:
        pytest.skip("needs libnanomsg5")
    nanomsg = ctypes.CDLL(library, use_errno=True)
    address = f"ipc://{tmp_path}/p"
    with listening(address) as (_, ports):
        pair = nanomsg.nn_socket(AF_SP, PAIR)
        assert nanomsg.nn_connect(pair, address.encode()) >= 0
        message = packet(1, b"z" * 99)
        assert nanomsg.nn_send(pair, message, len(message), 0) == len(message)
        wait_until(lambda: ports[1].receive(8) == [b"z" * 99], "nanomsg's packet is missing")
        assert ports[2].send([b"w" * 80]) == 1
        buffer = ctypes.create_string_buffer(LONGEST_MESSAGE)
        assert nanomsg.nn_recv(pair, buffer, len(buffer), 0) == HEAD.size + 80
        assert buffer.raw[: HEAD.size + 80] == HEAD.pack(Kind.PACKET_OUT, 2, 80) + b"w" * 80
        nanomsg.nn_close(pair)
