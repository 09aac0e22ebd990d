"""Virtual time without Linux features, as on macOS: run as a script, which hides them and then sends a packet.

Hidden are modules used only on Linux, and names that Python has only on Linux. Prints the arrivals.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from ipaddress import IPv4Address
from types import ModuleType
from typing import Final

MODULES: Final = frozenset({"pyroute2", "pyudev", "spwd", "ossaudiodev"})
NAMES: Final[dict[ModuleType, tuple[str, ...]]] = {
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL_*", "F_SETPIPE_SZ", "F_GETPIPE_SZ", "F_NOTIFY", "DN_*"),
    mmap: ("MAP_POPULATE", "MAP_STACK", "MADV_HUGEPAGE", "MADV_NOHUGEPAGE", "MADV_DONTFORK", "MADV_DONTDUMP"),
    os: (
        "sched_getaffinity",
        "sched_setaffinity",
        "sched_getscheduler",
        "sched_setscheduler",
        "memfd_create",
        "MFD_*",
        "pidfd_open",
        "P_PIDFD",
        "eventfd*",
        "EFD_*",
        "timerfd*",
        "TFD_*",
        "unshare",
        "setns",
        "CLONE_*",
        "splice",
        "copy_file_range",
        "posix_fallocate",
        "posix_fadvise",
        "fdatasync",
        "pipe2",
        "getrandom",
        "O_PATH",
        "O_TMPFILE",
        "O_DIRECT",
        "setresuid",
        "getresuid",
        "getxattr",
        "setxattr",
    ),
    resource: ("RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME", "prlimit"),
    select: ("epoll", "EPOLL*"),
    signal: (
        "pidfd_send_signal",
        "SIGRTMIN",
        "SIGRTMAX",
        "SIGPWR",
        "SIGPOLL",
        "SIGSTKFLT",
        "sigwaitinfo",
        "sigtimedwait",
    ),
    socket: (
        "AF_PACKET",
        "PF_PACKET",
        "PACKET_*",
        "AF_NETLINK",
        "NETLINK_*",
        "AF_VSOCK",
        "AF_CAN",
        "SO_MARK",
        "SO_BINDTODEVICE",
        "SO_PEERCRED",
        "SO_PASSCRED",
        "SO_DOMAIN",
        "SO_PROTOCOL",
        "SO_INCOMING_CPU",
        "SOCK_CLOEXEC",
        "SOCK_NONBLOCK",
        "MSG_CMSG_CLOEXEC",
        "MSG_ERRQUEUE",
        "TCP_USER_TIMEOUT",
        "TCP_CONGESTION",
        "TCP_QUICKACK",
        "IP_RECVTOS",
    ),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
}
"""Linux-only names of each module, as patterns."""


class _Absent(MetaPathFinder):
    """Finds none of MODULES, wherever they are installed."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        del path, target
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide() -> None:
    """Hide all of it from later imports."""
    sys.meta_path.insert(0, _Absent())
    for module, patterns in NAMES.items():
        for name in [name for name in vars(module) if any(fnmatchcase(name, pattern) for pattern in patterns)]:
            delattr(module, name)


def send_a_packet() -> list[str]:
    """Send a packet over a spine to the next leaf under telemetry; return what arrived, and the state of its path."""
    from collectors.collector import Collector  # noqa: PLC0415 - Linux must be hidden first
    from controller.network.tables.telemetry.int_watch import Watch  # noqa: PLC0415
    from controller.network.virtual import VirtualController  # noqa: PLC0415
    from dataplane.fabric.virtual import VirtualFabric  # noqa: PLC0415
    from dataplane.topology.addressing import gateway_mac  # noqa: PLC0415
    from dataplane.topology.file import load_topology  # noqa: PLC0415
    from dataplane.wire.packet import decode_udp_frame, udp_frame  # noqa: PLC0415

    topology = load_topology("leaf-spine:spines=1,leaves=2,hosts=1")
    assert topology.collector is not None
    at = topology.collector.host
    src, dst = (host for host in topology.hosts if host.name != at)
    send = partial(udp_frame, src_port=1000, dst_port=2000, payload=b"gradients")
    fabric = VirtualFabric(topology)
    VirtualController.over(fabric, watches=(Watch(),)).start()
    collector, messages = Collector(topology, fabric.clock), list[str]()

    def arrives(frame: bytes, now_ns: int) -> None:
        del now_ns
        packet = decode_udp_frame(frame)
        assert packet is not None
        source = packet.ip.src
        if packet.dst_port == collector.report_udp_port and isinstance(source, IPv4Address):
            collector.receive(packet.payload, address=source)
        else:
            messages.append(packet.payload.decode())

    for host in (dst.name, at):
        fabric.host(host).on_frame(arrives)
    fabric.run_until(1_000_000)
    frame = send(src=src.ipv4, dst=dst.ipv4, src_mac=src.mac, dst_mac=gateway_mac(topology, src.name))
    fabric.host(src.name).send(frame)
    fabric.run_until(100_000_000)
    return messages + [" ".join(path.switches) for path in collector.snapshot().paths.values()]


def main() -> None:
    """Import what `millrace demo` does, send a packet, and ask for a fabric of the kernel; print what came of it."""
    hide()
    import controller.apps.cli.app  # noqa: PLC0415
    import controller.apps.demo.command  # noqa: PLC0415
    import controller.apps.demo.virtual  # noqa: F401, PLC0415
    from controller.apps.cli import main as millrace  # noqa: PLC0415

    print(*send_a_packet(), sep="\n", flush=True)
    sys.platform = "darwin"
    sys.argv = ["millrace", "demo", "--time", "kernel"]
    millrace()


if __name__ == "__main__":
    main()
