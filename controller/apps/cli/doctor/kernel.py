"""Probes of the kernel: namespaces with cables, AF_XDP, raw packets, lockable memory, TCP's congestion controls."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from controller.apps.cli.doctor.values import Finding, Purpose
from dataplane.errors import PortError
from dataplane.nic.run_off_loop import on_a_thread
from dataplane.nic.settings import RingSettings

T = TypeVar("T")

NAMESPACES: Final = Purpose(
    "network namespaces",
    "fabrics in the kernel (`millrace fabric`, `up --time kernel`)",
    "run as root; in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN",
)
PACKETS: Final = Purpose(
    "raw packets", "switches between devices, probes", "run as root, or setcap cap_net_raw,cap_net_admin+ep on Python"
)
XDP: Final = Purpose(
    "AF_XDP",
    "ports of kind AF_XDP",
    "run as root, on a kernel with CONFIG_XDP_SOCKETS; in a container with CAP_BPF and CAP_NET_ADMIN",
)
MEMLOCK: Final = Purpose(
    "lockable memory", "AF_XDP without CAP_IPC_LOCK", "ulimit -l unlimited; LimitMEMLOCK=infinity in a unit"
)
CONGESTION: Final = Purpose(
    "congestion controls",
    "the kernel's TCP with CUBIC and Reno, in benchmarks and as a comparison",
    "modprobe tcp_cubic; sysctl net.ipv4.tcp_allowed_congestion_control='reno cubic'",
)
_CONTROLS: Final = ("cubic", "reno")
_AVAILABLE: Final = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
_CLONE_NEWNET: Final = 0x40000000
_CHUNK_BYTES: Final = 2048
"""Size of an AF_XDP slot for frames of 1500 bytes."""
_DEVICES: Final = ("probe0", "probe1")


def probe() -> Iterator[Finding]:
    """Yield the findings."""
    if sys.platform != "linux":
        for purpose in (NAMESPACES, PACKETS, XDP, MEMLOCK, CONGESTION):
            yield purpose.missing("needs Linux")
        return
    yield _namespaces()
    yield _packets()
    yield _xdp()
    yield memlock(RingSettings().rx_bytes(_CHUNK_BYTES) + RingSettings().tx_bytes(_CHUNK_BYTES))
    yield congestion()


def in_scratch_namespace(function: Callable[[], T]) -> T:
    """Call a function in a new, unnamed network namespace that ends with the call; raise OSError."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> T:
        if libc.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return function()

    return on_a_thread(enter, "doctor")


def _namespaces() -> Finding:
    try:
        in_scratch_namespace(lambda: None)
    except OSError as error:
        return NAMESPACES.missing(f"cannot be created: {error.strerror}")
    try:
        in_scratch_namespace(_connect)
    except OSError as error:
        return NAMESPACES.limited(f"can be created, but no veth cables in them: {error}")
    return NAMESPACES.ok("created one with a veth cable")


def _connect() -> int:
    """Create a cable with both ends up; return the index of one."""
    from pyroute2 import IPRoute  # noqa: PLC0415 - only Linux has it
    from pyroute2.netlink.exceptions import NetlinkError  # noqa: PLC0415

    near, far = _DEVICES
    try:
        with IPRoute() as netlink:
            netlink.link("add", ifname=near, kind="veth", peer={"ifname": far})
            for name in _DEVICES:
                netlink.link("set", index=socket.if_nametoindex(name), state="up")
    except NetlinkError as error:
        raise OSError(error.code, os.strerror(error.code)) from error
    return socket.if_nametoindex(near)


def _packets() -> Finding:
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW):
            return PACKETS.ok("opened a packet socket")
    except OSError as error:
        return PACKETS.missing(f"a packet socket: {error.strerror}")


def _xdp() -> Finding:
    from dataplane.nic.devices.device import Device  # noqa: PLC0415 - netlink
    from dataplane.nic.ports.xdp_socket import open_xdp_sockets  # noqa: PLC0415

    def receive() -> str:
        device = Device(_DEVICES[0], _connect(), 1500, "veth")
        sockets = open_xdp_sockets(device, 1, RingSettings())
        place = sockets[0].program_place
        for each in sockets:
            each.close()
        return place

    try:
        return XDP.ok(f"opened a socket on a veth device, program in place: {in_scratch_namespace(receive)}")
    except OSError as error:
        return XDP.missing(f"not tried, as it needs a namespace: {error.strerror}")
    except PortError as error:
        return XDP.missing(str(error).removeprefix(f"interface {_DEVICES[0]}: "))


def memlock(nbytes: int) -> Finding:
    """Return whether the rings of a queue, of `nbytes`, can be locked in memory."""
    libc = ctypes.CDLL(None, use_errno=True)
    problem = None
    try:
        with mmap.mmap(-1, nbytes) as area:
            start = ctypes.c_char.from_buffer(area)
            address, size = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(nbytes)
            if libc.mlock(address, size) != 0:
                problem = os.strerror(ctypes.get_errno())
            libc.munlock(address, size)
            del start  # or the area could not be closed
    except OSError as error:
        problem = error.strerror
    rings = f"{nbytes >> 10} KiB, the default rings of a queue"
    return (
        MEMLOCK.ok(f"locked {rings}") if problem is None else MEMLOCK.limited(f"{rings}, cannot be locked: {problem}")
    )


def congestion(available: Path = _AVAILABLE) -> Finding:
    """Return which congestion controls a socket can be given, of those that the kernel has loaded."""
    try:
        loaded = available.read_text(encoding="ascii").split()
    except OSError as error:
        return CONGESTION.missing(f"{available}: {error.strerror}")
    # Asking for another one would make the kernel load its module.
    usable = [name for name in loaded if _is_allowed(name)]
    text = f"usable: {', '.join(usable) or 'none'}"
    absent = [name for name in _CONTROLS if name not in usable]
    return CONGESTION.limited(f"{text}; not {' and '.join(absent)}") if absent else CONGESTION.ok(text)


def _is_allowed(name: str) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe_socket:
        try:
            probe_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            return False
    return True
