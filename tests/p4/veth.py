"""Packet sockets in the tests' own network namespace, on veth pairs with a switch at the other end."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from pyroute2 import netns

_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_AUXDATA, _PACKET_OUTGOING = 263, 8, 4
_AUXDATA = struct.Struct("=IIIHHHH")
_VLAN_VALID = 1 << 4
_PREFIX = "millrace-p4-"
_numbers = itertools.count(1)


class Namespace:
    """A namespace with veth pairs `s<port>` (the switch's end) and `h<port>` (ours), while the `with` block lasts."""

    def __init__(self, name: str, ports: tuple[int, ...]) -> None:
        self.name, self.ports = name, ports

    def __enter__(self) -> Namespace:
        _remove_leftovers()
        _run("ip", "netns", "add", self.name)
        with self._inside():
            for knob in ("all", "default"):
                Path(f"/proc/sys/net/ipv6/conf/{knob}/disable_ipv6").write_text("1", encoding="ascii")
        for port in self.ports:
            self.run("ip", "link", "add", f"s{port}", "type", "veth", "peer", "name", f"h{port}")
            for device in (f"s{port}", f"h{port}"):
                self.run("ip", "link", "set", device, "up", "mtu", "9000")
        return self

    def __exit__(self, *_: object) -> None:
        _remove(self.name)

    def run(self, *command: str) -> None:
        _run("ip", "netns", "exec", self.name, *command)

    def open_sockets(self) -> dict[int, socket.socket]:
        """Return a packet socket for our end of every port."""
        with self._inside():
            return {port: _packet_socket(f"h{port}") for port in self.ports}

    @contextlib.contextmanager
    def _inside(self) -> Iterator[None]:
        netns.pushns(self.name)
        try:
            yield
        finally:
            netns.popns()


def receive_all(packet_socket: socket.socket) -> Iterator[bytes]:
    """Yield the frames that came in, with the VLAN tags that the kernel took out of them."""
    while True:
        try:
            data, ancillary, _, address = packet_socket.recvmsg(65536, socket.CMSG_SPACE(_AUXDATA.size))
        except BlockingIOError:
            return
        if address[2] == _PACKET_OUTGOING:
            continue
        tags = [_vlan_tag(value) for level, kind, value in ancillary if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA)]
        yield data[:12] + b"".join(tags) + data[12:]


def _vlan_tag(auxdata: bytes) -> bytes:
    status, _, _, _, _, tag, _ = _AUXDATA.unpack(auxdata[: _AUXDATA.size])
    return struct.pack("!HH", 0x8100, tag) if status & _VLAN_VALID else b""


def _packet_socket(device: str) -> socket.socket:
    packet_socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
    packet_socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    packet_socket.bind((device, _ETH_P_ALL))
    packet_socket.setblocking(False)
    return packet_socket


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


def unique_name() -> str:
    """Return a namespace name that no other switch has, of this test run or another."""
    return f"{_PREFIX}{os.getpid()}-{next(_numbers)}"


def _remove_leftovers() -> None:
    """Remove the namespaces, and the switches in them, of test runs that were killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        if not Path("/proc", path.name.removeprefix(_PREFIX).partition("-")[0]).exists():
            _remove(path.name)


def _remove(name: str) -> None:
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    for pid in pids.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
