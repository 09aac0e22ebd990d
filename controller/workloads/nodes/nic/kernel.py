"""The kernel's view of a process that polls queues: its network namespace, sockets on devices, threads.

Sources: proc(5); packet(7) for /proc/PID/net/packet; the fdinfo of BPF links (ifindex of an XDP program's device).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from dataplane.clock import NS_PER_S
from dataplane.errors import MillraceError
from dataplane.fabric.kernel import namespaces
from dataplane.nic.managed.messages import QueueState

T = TypeVar("T")
_PROC: Final = Path("/proc")
_MOST_DESCRIPTORS: Final = 16_384
_RAW: Final = "3"
_SOCKET: Final = re.compile(r"socket:\[(\d+)\]")
_LINK: Final = "anon_inode:bpf_link"
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_INTERFACE, _TYPE, _INODE = 4, 2, 8
"""Columns of /proc/net/packet: sk, RefCnt, Type, Proto, Iface, R, Rmem, User, Inode."""


@dataclass(frozen=True, slots=True)
class Examination:
    """Outcome of a comparison of a report with the kernel.

    namespace: inode of the process's network namespace, None if it cannot be seen. confirmed: devices, with the
    transport, of which the kernel shows the queues. problem: the contradiction, empty without one.
    """

    namespace: int | None
    confirmed: frozenset[tuple[str, str]] = frozenset()
    problem: str = ""


@dataclass(slots=True)
class _Holdings:
    """Sockets and XDP programs of a process by device index; None: they cannot be seen."""

    raw_sockets: dict[int, int] | None = None
    programs: frozenset[int] | None = None
    names: dict[int, str | None] = field(default_factory=dict)
    """Devices of its namespace; None: there is none."""


def namespace_of_process(process: int) -> int | None:
    """Return the inode of a process's network namespace; None if it cannot be seen."""
    return inode_of(_PROC / str(process) / "ns" / "net")


def inode_of(path: Path) -> int | None:
    """Return the inode of a namespace; None if it cannot be seen."""
    try:
        return path.stat().st_ino
    except OSError:
        return None


def examine(process: int, states: Sequence[QueueState]) -> Examination:
    """Compare the queues that a process reports with what the kernel shows of it; takes some ms."""
    namespace = namespace_of_process(process)
    holdings = _holdings(process, {state.index for state in states if state.index})
    wanted: dict[tuple[str, int, str], int] = {}
    for state in states:
        key = (state.device, state.index, state.kind)
        wanted[key] = wanted.get(key, 0) + 1
    confirmed: set[tuple[str, str]] = set()
    for (device, index, kind), count in wanted.items():
        if index in holdings.names and holdings.names[index] != device:
            shown = holdings.names[index]
            return Examination(
                namespace, problem=f"device {index} is {shown or 'missing'} for the kernel, not {device}"
            )
        if kind == "xdp" and holdings.programs is not None:
            if index not in holdings.programs:
                return Examination(namespace, problem=f"the kernel shows no XDP program of it on {device}")
        elif kind.startswith("packet") and holdings.raw_sockets is not None:
            if (shown_sockets := holdings.raw_sockets.get(index, 0)) < count:
                problem = (
                    f"it reports {count} queues of {device}, the kernel shows {shown_sockets} packet sockets there"
                )
                return Examination(namespace, problem=problem)
        else:
            continue
        if holdings.names.get(index) == device:
            confirmed.add((device, kind))
    return Examination(namespace, frozenset(confirmed))


def _holdings(process: int, indices: set[int]) -> _Holdings:
    folder = _PROC / str(process)
    holdings = _Holdings()
    try:
        inodes, links = _descriptors(folder)
        rows = [line.split() for line in (folder / "net" / "packet").read_text().splitlines()[1:]]
        holdings.raw_sockets = {}
        for row in rows:
            if len(row) > _INODE and row[_TYPE] == _RAW and row[_INODE] in inodes:
                index = int(row[_INTERFACE])
                holdings.raw_sockets[index] = holdings.raw_sockets.get(index, 0) + 1
        holdings.programs = frozenset(index for index in map(_device_of_link, links) if index is not None)
    except (OSError, ValueError):
        pass  # another user's, hidden, or gone: nothing is confirmed
    with suppress(OSError, MillraceError):
        holdings.names = _in_namespace(process, lambda: {index: _name_of(index) for index in indices})
    return holdings


def _descriptors(folder: Path) -> tuple[set[str], list[Path]]:
    """Return the inodes of a process's sockets, and the fdinfo of its BPF links."""
    inodes: set[str] = set()
    links: list[Path] = []
    for descriptor in islice((folder / "fd").iterdir(), _MOST_DESCRIPTORS):
        with suppress(OSError):  # closed meanwhile
            target = str(descriptor.readlink())
            if (match := _SOCKET.fullmatch(target)) is not None:
                inodes.add(match[1])
            elif target == _LINK:
                links.append(folder / "fdinfo" / descriptor.name)
    return inodes, links


def _device_of_link(information: Path) -> int | None:
    with suppress(OSError):
        for line in information.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "ifindex":
                return int(value)
    return None


def _name_of(index: int) -> str | None:
    try:
        return socket.if_indextoname(index)
    except OSError:
        return None


def _in_namespace(process: int, function: Callable[[], T]) -> T:
    """Call a function in a process's network namespace; raise OSError or MillraceError without the right to."""
    if namespace_of_process(process) == inode_of(_PROC / "thread-self" / "ns" / "net"):
        return function()
    return namespaces.call(f"{_PROC}/{process}/ns/net", function)


@dataclass(frozen=True, slots=True)
class ThreadReading:
    """A thread's CPU time so far and the core that ran it last, or its process's CPU time."""

    cpu_ns: int
    core: int | None


def read_thread(process: int, thread: int) -> ThreadReading | None:
    """Return the reading of a process's thread, of the whole process for thread 0; None if there is none."""
    folder = _PROC / str(process)
    try:
        if thread == 0:
            fields = _stat(folder)
            return ThreadReading((int(fields[11]) + int(fields[12])) * NS_PER_S // _TICKS_PER_S, None)
        own = folder / "task" / str(thread)
        return ThreadReading(int((own / "schedstat").read_text().split()[0]), int(_stat(own)[36]))
    except (OSError, ValueError, IndexError):
        return None


def _stat(folder: Path) -> list[str]:
    """Return the fields of a stat file behind the name, which may hold anything."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def processor_shares(
    before: Mapping[tuple[int, int], tuple[int, int]], now: Mapping[tuple[int, int], tuple[int, int]]
) -> dict[tuple[int, int], float]:
    """Return shares of a processor between two readings: (time, CPU time), in ns, by process and thread."""
    return {
        key: max(cpu_ns - before[key][1], 0) / (time_ns - before[key][0])
        for key, (time_ns, cpu_ns) in now.items()
        if key in before and time_ns > before[key][0]
    }
