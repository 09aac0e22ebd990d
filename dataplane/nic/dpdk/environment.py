"""DPDK's environment (EAL): started once per process, with its own memory, no huge pages and no files.

The process keeps its CPU affinity; DPDK's threads do nothing but wait. Its messages, from warnings on, go to the log
`millrace.dpdk`.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import threading
from dataclasses import dataclass

from dataplane.errors import PortError
from dataplane.nic.devices.netns import in_netns, open_netns
from dataplane.nic.dpdk.shim import load_shim

logger = logging.getLogger("millrace.dpdk")
_MESSAGE_BYTES = 1 << 16
_lock = threading.Lock()
_started: dict[str, Environment | str] = {}
"""Result of the only start attempt: the environment, or the error."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The shim, once DPDK runs, and the pipe that carries its messages."""

    shim: ctypes.CDLL
    messages: int
    has_pci: bool

    def log(self) -> str:
        """Log DPDK's messages since the last call; return the first line, which usually states the cause."""
        try:
            text = os.read(self.messages, _MESSAGE_BYTES).decode(errors="replace")
        except BlockingIOError:
            return ""
        lines = text.splitlines()
        for line in lines:
            logger.warning("%s", line)
        return lines[0] if lines else ""

    def require(self, result: int, what: str) -> None:
        """Raise PortError unless a function of the shim returned 0."""
        reason = self.log()
        if result != 0:
            raise PortError(f"{what}: {reason or os.strerror(-result)}")


def start_environment(memory_mib: int, *, with_pci: bool) -> Environment:
    """Return DPDK's environment, started by the first call; raise PortError if it cannot start.

    A process that uses PCI devices has to open one of them first: DPDK looks for them only at startup.
    """
    with _lock:
        environment = _start(memory_mib, with_pci)
    if with_pci and not environment.has_pci:
        raise PortError("DPDK was started without PCI devices: open the PCI port before the others")
    return environment


def _start(memory_mib: int, with_pci: bool) -> Environment:
    earlier = _started.get("it")
    if isinstance(earlier, str):
        raise PortError(earlier)
    if earlier is not None:
        return earlier
    shim = load_shim()
    ours, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    arguments = _arguments(memory_mib, with_pci)
    vector = (ctypes.c_char_p * (len(arguments) + 1))(*(each.encode() for each in arguments), None)
    environment = Environment(shim, ours, with_pci)
    home = open_netns(str(os.getpid()))
    # DPDK's thread must run in the process's namespace, not keep one alive that this thread is visiting.
    with in_netns(home):
        result = shim.millrace_start(len(arguments), vector, theirs)
    os.close(home)
    try:
        environment.require(result, "DPDK cannot be started")
    except PortError as error:
        # DPDK refuses a second attempt in the same process, whatever its arguments.
        _started["it"] = str(error)
        raise
    _quieten()
    _started["it"] = environment
    return environment


def _quieten() -> None:
    """Keep the libraries beneath net_af_xdp from writing to standard error; DPDK reports failures itself."""
    for library in ("bpf", "xdp"):
        with contextlib.suppress(OSError):
            loaded = ctypes.CDLL(f"lib{library}.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
            getattr(loaded, f"lib{library}_set_print")(None)


def _arguments(memory_mib: int, with_pci: bool) -> list[str]:
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return [
        "millrace",
        f"--lcores=0@({processors})",
        "--no-huge",
        "--no-shconf",
        "--no-telemetry",
        f"--file-prefix=millrace-{os.getpid()}",
        "--log-level=*:warning",
        f"-m{memory_mib}",
        *([] if with_pci else ["--no-pci"]),
    ]
