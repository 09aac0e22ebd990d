"""Ports on UNIX sockets: one frame a message, whole or not at all; vanishing peers."""

from __future__ import annotations

import ctypes
import socket
from pathlib import Path

import pytest

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic import NicPort, connect_socket_port, open_socket_port
from dataplane.nic.ports.kernels import wait

KINDS = pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
FRAMES = [bytes([number]) * (1 + 37 * number) for number in range(200)]


def make_pair(kind: socket.SocketKind, slots: int = 256, slot_bytes: int = 1 << 14) -> tuple[NicPort, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    theirs.settimeout(5.0)
    return open_socket_port(ours, "ours", slots=slots, slot_bytes=slot_bytes), theirs


@KINDS
def test_frames_cross_both_ways(kind: socket.SocketKind) -> None:
    ours, theirs = make_pair(kind)
    peer = open_socket_port(theirs, "theirs")
    with ours, peer:
        got: list[bytes] = []
        sent = ours.send(FRAMES)
        while len(got) < len(FRAMES):
            got += peer.receive(7)
            sent += ours.send([b""]) if ours.queues[0].tx_pending else 0
        assert (got, sent) == (FRAMES, len(FRAMES))
        assert peer.send([b"back"]) == 1
        assert ours.receive(8) == [b"back"]
        assert ours.receive(8) == []


@KINDS
def test_a_message_longer_than_a_buffer_is_counted(kind: socket.SocketKind) -> None:
    ours, theirs = make_pair(kind, slot_bytes=64)
    with ours, theirs:
        for frame in (bytes(64), bytes(65), b"end"):
            theirs.send(frame)
        assert ours.receive(8) == [bytes(64), b"end"]
        assert ours.send([bytes(65), b""]) == 0
        assert ours.read_counters().drops == {"received_too_long": 1, "too_long": 1, "send_refused": 1}


@KINDS
def test_a_peer_that_does_not_read_fills_the_line(kind: socket.SocketKind) -> None:
    ours, theirs = make_pair(kind, slots=16)
    with ours, theirs:
        assert ours.send([b"frame"] * 10_000) < 10_000
        reading = ours.read_counters()
        waiting = ours.queues[0].tx_pending
        assert waiting == 16
        assert reading.tx_frames + waiting + reading.drops["send_queue_full"] == 10_000
        for _ in range(reading.tx_frames):
            theirs.recv(64)
        ours.send([b"more"])
        assert ours.read_counters().tx_frames == reading.tx_frames + waiting + 1


@KINDS
def test_a_peer_that_goes_is_noticed_and_never_spins(kind: socket.SocketKind) -> None:
    ours, theirs = make_pair(kind)
    queues = (ctypes.c_uint64 * 1)(ours.queues[0].address)
    sleep = kernel_library(wait).bind(wait)
    with ours:
        theirs.send(b"last")
        theirs.close()
        assert ours.receive(8) == [b"last"]
        assert ours.receive(8) == []
        assert ours.send([b"lost"]) == 0
        assert ours.is_down
        assert ours.read_counters().drops == {"port_down": 1}
        sleep(queues, 1, -1, 1_000_000)
        assert sleep(queues, 1, -1, 1_000_000) == 0


def test_connecting_finds_out_the_kind(tmp_path: Path) -> None:
    for number, kind in enumerate([socket.SOCK_DGRAM, socket.SOCK_SEQPACKET]):
        path, own = tmp_path / f"peer{number}", tmp_path / f"own{number}"
        with socket.socket(socket.AF_UNIX, kind) as peer:
            peer.bind(str(path))
            if kind == socket.SOCK_SEQPACKET:
                peer.listen()
            with connect_socket_port(path, own_path=own) as port:
                assert port.name == str(path)
                assert port.send([b"frame"]) == 1
                end = peer.accept()[0] if kind == socket.SOCK_SEQPACKET else peer
                assert end.recv(64) == b"frame"
                end.close()


def test_what_cannot_be_a_port_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PortError, match=rf"^port p: {tmp_path}/none: No such file or directory$"):
        connect_socket_port(tmp_path / "none", "p")
    end, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with end, other, pytest.raises(PortError, match=r"^port p: its socket does not preserve frame boundaries"):
        open_socket_port(end, "p")
    path = tmp_path / "stream"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.bind(str(path))
        stream.listen()
        with pytest.raises(PortError, match=rf"^port {path}: {path}: Protocol wrong type for socket$"):
            connect_socket_port(path)
