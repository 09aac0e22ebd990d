"""XDP programs that net_af_xdp leaves on a device when its process is killed: removed before the next port opens.

DPDK attaches them to the device, where they outlive their process and keep out other programs. So a port notes its own
program in a file that it holds locked. The kernel releases the lock however the process ends: a program noted in an
unlocked file belongs to a dead process; any other is left alone.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.native import cache
from dataplane.nic.devices.device import Device

_DETACH = -1
_MODE_FLAGS = {1: 1 << 2, 2: 1 << 1, 3: 1 << 3}
"""XDP_FLAGS_DRV_MODE, _SKB_MODE and _HW_MODE by XDP_ATTACHED_DRV, _SKB and _HW (linux/if_link.h)."""
_NOTE_BYTES = 32
KEPT_NOTES = 64
"""The oldest of dead processes are removed when there are more: usually their devices are gone, too."""


class ProgramNote:
    """The note of one device's program, which makes this process its owner; raises PortError if another process is.

    Removes what a dead process has left. Acts in the network namespace of the calling thread.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        netns = os.stat("/proc/thread-self/ns/net").st_ino  # noqa: PTH116 - it would resolve the link
        self._path = cache.default_dir() / "af_xdp" / f"{netns}-{device.index}"
        self._file = _open(self._path, device)
        try:
            left = os.read(self._file, _NOTE_BYTES).decode(errors="replace")
            attached = read_program(device)
            if attached is not None and str(attached[0]) == left:
                detach(device, attached[1])
            elif attached is not None:
                raise PortError(
                    f"interface {device.name}: another XDP program is on it: ip link set {device.name} xdp off"
                )
        except PortError:
            os.close(self._file)
            raise

    def write(self) -> None:
        """Note the program currently on the device."""
        attached = read_program(self._device)
        os.ftruncate(self._file, 0)
        if attached is not None:
            os.pwrite(self._file, str(attached[0]).encode(), 0)

    def close(self) -> None:
        """Forget the program, which is off the device."""
        with suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._file)


def read_program(device: Device) -> tuple[int, int] | None:
    """Return the number of the XDP program on a device and its mode, or None."""
    with IPRoute() as netlink:
        links: list[Any] = list(netlink.link("get", index=device.index))
    nested: Any = links[0].get_attr("IFLA_XDP") if links else None
    number = nested.get_attr("IFLA_XDP_PROG_ID") if nested is not None else None
    return None if number is None else (int(number), _mode_of(nested.get_attr("IFLA_XDP_ATTACHED")))


def _mode_of(attached: object) -> int:
    """Return the XDP_ATTACHED number for pyroute2's decoded form."""
    names = {"xdp": 1, "xdpgeneric": 2, "xdpoffload": 3}
    return attached if isinstance(attached, int) else names.get(str(attached), 1)


def detach(device: Device, mode: int) -> None:
    """Remove the XDP program from a device that runs it in a mode."""
    change = {"attrs": [("IFLA_XDP_FD", _DETACH), ("IFLA_XDP_FLAGS", _MODE_FLAGS[mode])]}
    with IPRoute() as netlink:
        netlink.link("set", index=device.index, IFLA_XDP=change)


def _open(path: Path, device: Device) -> int:
    """Open and lock the note of a device."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise PortError(f"{path}: the owner of an XDP program cannot be recorded there: {error.strerror}") from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(opened)
        raise PortError(
            f"interface {device.name}: another process receives from it through DPDK's net_af_xdp"
        ) from error
    _forget_oldest(path.parent)
    return opened


def _forget_oldest(folder: Path) -> None:
    with suppress(FileNotFoundError):  # another process is cleaning up, too
        notes = sorted(folder.iterdir(), key=lambda note: note.stat().st_mtime_ns)
        for note in notes[:-KEPT_NOTES]:
            with note.open("rb") as file, suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                note.unlink()
