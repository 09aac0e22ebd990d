"""Probes of this machine: folders, default ports, GPUs, and remains of dead runs."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from controller.apps.cli.doctor.values import Finding, Purpose
from dataplane.native import cache
from dataplane.rpc.own_folder import own_folders, refusal

RUN: Final = Purpose(
    "run folder",
    "the daemons' sockets",
    "make the folder yours: chown, chmod 700; or set XDG_RUNTIME_DIR",
    is_required=True,
)
CACHE: Final = Purpose(
    "cache folder", "fast starts: compiled kernels are kept", "make it writable, or set MILLRACE_CACHE_DIR"
)
PORTS: Final = Purpose(
    "default ports", "daemons without other settings", "stop the other program, or give the daemon another port"
)
GPU: Final = Purpose(
    "GPU", "operators, probes and training on GPUs", "install the driver; in a container pass the device on"
)
STALE: Final = Purpose(
    "remains of dead runs",
    "nothing: they only take space and names",
    "sudo millrace clean; the next start replaces sockets",
)
_PORTS: Final = (
    ("collector, reports", socket.SOCK_DGRAM, "0.0.0.0", 32766),  # noqa: S104 - the default itself
    ("switch, P4Runtime", socket.SOCK_STREAM, "127.0.0.1", 9559),
    ("kube-scheduler's extender", socket.SOCK_STREAM, "127.0.0.1", 8888),
    ("content producer", socket.SOCK_DGRAM, "127.0.0.1", 19778),
)
_KFD: Final = Path("/dev/kfd")
_NAME_BYTES: Final = 256


def probe() -> Iterator[Finding]:
    """Yield the findings."""
    yield _run_folder()
    yield _cache_folder()
    yield ports(_PORTS)
    yield _gpu()
    yield _stale()


def _run_folder() -> Finding:
    folder = own_folders()[0]
    problem = refusal(folder)
    if problem is None and not _is_writable(folder):
        problem = f"{folder} cannot be created or written"
    return RUN.ok(str(folder)) if problem is None else RUN.missing(problem)


def _cache_folder() -> Finding:
    folder = cache.default_dir()
    return CACHE.ok(str(folder)) if _is_writable(folder) else CACHE.limited(f"{folder} cannot be created or written")


def _is_writable(folder: Path) -> bool:
    """Return whether a folder, or the nearest one above it that exists, can be written."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    return os.access(there, os.W_OK | os.X_OK)


def ports(wanted: Sequence[tuple[str, int, str, int]]) -> Finding:
    """Return which ports, each with its use, kind, address and number, cannot be bound."""
    taken = []
    for use, kind, host, port in wanted:
        with socket.socket(socket.AF_INET, socket.SocketKind(kind)) as opened:
            if kind == socket.SOCK_STREAM:
                # As servers do: an old connection in TIME_WAIT does not count.
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                opened.bind((host, port))
            except OSError as error:
                name = "udp" if kind == socket.SOCK_DGRAM else "tcp"
                taken.append(f"{host}:{port}/{name} ({use}): {error.strerror}")
    return PORTS.limited("; ".join(taken)) if taken else PORTS.ok(f"bound all {len(wanted)}")


def _gpu() -> Finding:
    names = [*_cuda(), *(["an AMD GPU (ROCm)"] if os.access(_KFD, os.R_OK | os.W_OK) else [])]
    if names:
        return GPU.ok(", ".join(names))
    seen = _on_the_bus() if sys.platform == "linux" else []
    return GPU.limited(f"{', '.join(seen)}, but no driver answers") if seen else GPU.missing("none on this machine")


def _cuda() -> list[str]:
    """Return the names of the devices that CUDA's driver offers."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    names = []
    for index in range(count.value):
        name, device = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(device), index) == 0:
            driver.cuDeviceGetName(name, _NAME_BYTES, device)
            names.append(name.value.decode(errors="replace"))
    return names


def _on_the_bus() -> list[str]:
    from collectors.devices.discovery import discover  # noqa: PLC0415 - only Linux has /sys
    from collectors.devices.root import Root  # noqa: PLC0415
    from dataplane.topology.values import DeviceKind  # noqa: PLC0415

    machine = discover(Root(Path("/")), "NVML: not asked")
    return [each.device.model for each in machine.devices if each.device.kind is DeviceKind.GPU]


def _stale() -> Finding:
    remains = [*stale_sockets(own_folders()), *(_stale_fabrics() if sys.platform == "linux" else ())]
    return STALE.limited("; ".join(remains)) if remains else STALE.ok("none")


def stale_sockets(folders: Sequence[Path]) -> list[str]:
    """Return the sockets below folders at which nobody listens."""
    paths = (path for folder in folders if os.access(folder, os.R_OK) for path in sorted(folder.rglob("*.sock")))
    return [f"nobody listens at {path}" for path in paths if _is_dead(path)]


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.settimeout(1)
        try:
            opened.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # busy, of another kind, or not ours to ask
    return False


def _stale_fabrics() -> list[str]:
    from dataplane.fabric.kernel.manifest import RUN_ROOT, find_leftovers  # noqa: PLC0415

    if not os.access(RUN_ROOT, os.R_OK):
        return []
    problems: list[str] = []
    fabrics = find_leftovers(on_problem=problems.append)
    return [
        f"fabric {each.fabric_id}: {len(each.namespaces)} namespaces, {len(each.pids)} processes" for each in fabrics
    ] + problems
