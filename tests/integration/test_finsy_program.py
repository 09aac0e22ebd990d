"""A finsy program drives `millrace switch` over TCP: writes, reads, packet-in and packet-out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from ipaddress import ip_address
from pathlib import Path

import pytest

from dataplane.fabric.kernel import namespaces
from dataplane.nic.devices import ethernet
from dataplane.wire.packet import decode_udp_frame, udp_frame
from tests.compiled_fabric import compile_fabric
from tests.free_ports import free_ports
from tests.integration.finsy_program import GOODBYE, LLDP
from tests.network_namespace import network_namespace

ROOT = Path(__file__).parents[2]
P4INFO, PROGRAM = ROOT / "p4/build/fabric.p4info.txtpb", ROOT / "p4/build/fabric.json"
LIMIT_S = 120.0
MAC = bytes.fromhex("020000000011")

SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23

Start = Callable[..., "subprocess.Popen[str]"]


def start_here(argv: list[str], *descriptors: int) -> subprocess.Popen[str]:
    """Start a Python process in this network namespace."""
    return subprocess.Popen(
        [sys.executable, *argv],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        pass_fds=descriptors,
    )


def start_switch(stack: ExitStack, start: Start, address: str, *interfaces: str) -> None:
    """Start `millrace switch` and wait for its ready line; it ends with the stack, or with this process."""
    compile_fabric()
    argv = ["-m", "controller.apps.cli", "switch", *interfaces, "--no-p4", "--device-id", "1"]
    lifeline, ours = os.pipe()
    stack.callback(os.close, ours)
    argv += ["--lifeline-fd", str(lifeline)]
    process = start([*argv, "--", "--grpc-server-addr", address, "--cpu-port", "255"], lifeline)
    os.close(lifeline)
    stack.callback(_end, process)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if "ready" in line:
            return
    pytest.fail(f"the switch ended before it was ready: {''.join(lines)}")


def start_program(stack: ExitStack, start: Start, address: str, *words: str) -> subprocess.Popen[str]:
    """Start the finsy program and return it when it has filled the switch."""
    process = start(["-m", "tests.integration.finsy_program", address, str(P4INFO), str(PROGRAM), *words])
    stack.callback(_end, process)
    assert process.stdout is not None
    if process.stdout.readline() != "filled\n":
        pytest.fail(_rest(process))
    return process


def result(process: subprocess.Popen[str]) -> dict[str, object]:
    """Wait for the program's end and return its observations."""
    output, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, errors
    seen: dict[str, object] = json.loads(output.splitlines()[-1])
    return seen


def _rest(process: subprocess.Popen[str]) -> str:
    return "".join(process.communicate(timeout=LIMIT_S))


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate()


def test_a_finsy_program_writes_and_reads() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with ExitStack() as stack:
        start_switch(stack, start_here, address)
        seen = result(start_program(stack, start_here, address))
    assert seen == {
        "routes": [{"dst_addr": [0x0A000200, 24]}],
        "groups": [1],
        "flows": [[5, 2]],
        "second_insert": "ALREADY_EXISTS",
        "dropped": [0],
        "packet_in_ports": [],
        "left": 0,
        "primary": True,
    }


@pytest.fixture
def namespace() -> Iterator[str]:
    """Return a namespace with pairs a1-b1 and a2-b2: the switch has the a, the test the b."""
    with network_namespace(("a1", "b1"), ("a2", "b2")) as name:
        namespaces.call(name, lambda: ethernet.set_up("lo", is_up=True))
        yield name


def open_port(namespace: str, device: str) -> socket.socket:
    """Return a packet socket on our end of a pair."""

    def make() -> socket.socket:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
        opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        opened.bind((device, 0x0003))
        opened.settimeout(LIMIT_S)
        return opened

    return namespaces.call(namespace, make)


def lldp(text: bytes) -> bytes:
    return bytes.fromhex("0180c200000e") + MAC + LLDP.to_bytes(2, "big") + text.ljust(50, b"\0")


def udp(dst: str) -> bytes:
    return udp_frame(
        src_mac=int.from_bytes(MAC, "big"),
        dst_mac=0x020000000001,
        src=ip_address("10.0.1.1"),
        dst=ip_address(dst),
        src_port=7,
        dst_port=9,
        payload=b"finsy",
        dscp=0,
    )


@pytest.mark.root
def test_a_finsy_program_routes_and_answers_packets(namespace: str) -> None:
    def start(argv: list[str], *descriptors: int) -> subprocess.Popen[str]:
        return namespaces.call(namespace, lambda: start_here(argv, *descriptors))

    with ExitStack() as stack:
        start_switch(stack, start, "127.0.0.1:9559", "-i", "1@a1", "-i", "2@a2")
        ours = {port: stack.enter_context(open_port(namespace, f"b{port}")) for port in (1, 2)}
        program = start_program(stack, start, "127.0.0.1:9559", "packets")
        ours[2].send(lldp(b"hello"))
        assert ours[1].recv(2000) == lldp(b"hello")
        for dst in ("10.0.2.7", "10.0.3.1"):
            ours[1].send(udp(dst))
            frame = ours[2].recv(2000)
            assert frame[:12].hex(":") == "02:00:00:00:00:99:02:00:00:00:00:02"
            datagram = decode_udp_frame(frame)
            assert datagram is not None
            assert (str(datagram.ip.dst), datagram.payload, datagram.checksum_ok) == (dst, b"finsy", True)
        ours[1].send(udp("10.9.9.9"))
        ours[1].send(lldp(GOODBYE))
        assert ours[2].recv(2000) == lldp(GOODBYE)
        seen = result(program)
    assert seen["packet_in_ports"] == [2, 1]
    assert seen["dropped"] == [1]
    assert seen["left"] == 0
