"""`python -I -S controller/workloads/nodes/guard/__main__.py LEASE LOCK`: kills a node's pods when its lease ends.

It runs in its own session, so that it outlives the manager, however that ends. It sleeps until the lease's end in the
file, checks whether that has moved, and otherwise kills everything in the control groups that the file names:
repeatedly for a while, as a runtime may still be starting something. It holds LOCK, which contains its process id.
When the file is gone it kills the rest, and exits. It loads nothing of Millrace but its two siblings: it starts in a
few ms and takes a few MB.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes long to load

from killing import kill_all  # type: ignore[import-not-found]
from lease_file import LeaseFileError, boot_id, read  # type: ignore[import-not-found]

_LONGEST_SLEEP_S = 1.0
"""CLOCK_BOOTTIME advances during suspend, but sleepers do not wake."""
_AGAIN_S = 0.2
_LINGER_S = 60.0
"""Longest time after which a dead manager's requests still take effect; a living one restarts its guard."""


def main(lease: str, lock: str) -> int:
    """Guard until the lease's file is gone; return 1 at once if another guard runs."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    os.pwrite(descriptor, f"{os.getpid():<11}\n".encode(), 0)
    boot, current, quiet_since_s = boot_id(), None, time.monotonic()
    while True:
        try:
            current = read(lease)
        except FileNotFoundError:
            if current is not None:
                kill_all(current[2], time.monotonic() + _LONGEST_SLEEP_S)
            return 0
        except (OSError, LeaseFileError):
            pass  # half written, or a failing disk: the last known lease counts
        left_s = _LONGEST_SLEEP_S if current is None else left_of(current, boot)
        if current is not None and left_s <= 0:
            killed = kill_all(current[2], time.monotonic() + _LONGEST_SLEEP_S)
            if killed:
                tell(lease)
                quiet_since_s = time.monotonic()
            elif time.monotonic() - quiet_since_s > _LINGER_S:
                return 0
            left_s = _AGAIN_S
        else:
            quiet_since_s = time.monotonic()
        time.sleep(min(left_s, _LONGEST_SLEEP_S))


def tell(lease: str) -> None:
    """Leave a note for the next manager that the ended containers were killed."""
    with contextlib.suppress(OSError):
        os.close(os.open(f"{lease}.killed", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def left_of(lease: tuple[int, str, tuple[str, ...]], boot: str) -> float:
    """Return the seconds left of a lease; none for a lease of another boot."""
    return (lease[0] - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9 if lease[1] == boot else 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
