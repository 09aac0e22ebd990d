"""`python -I -S controller/workloads/nodes/guard/__main__.py LEASE LOCK`: kills a node's pods when its lease ends.

It runs in its own session, so that it outlives the manager, however that ends. It sleeps until the end in the file,
checks whether that has moved, and otherwise kills everything in the control groups that the file names: repeatedly for
a while, as a runtime may still be starting something. It holds LOCK, which contains its process id. When the file is
gone it kills what is left, and ends. It loads nothing of Millrace but its two neighbours: some ms to start, some MB.
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
"""Suspend moves CLOCK_BOOTTIME on, but wakes no sleeper."""
_AGAIN_S = 0.2
_LINGER_S = 60.0
"""This long after the end nothing comes any more that a dead manager requested; a living one restarts its guard."""


def main(lease: str, lock: str) -> int:
    """Guard until the lease's file is gone; return 1 at once if another guard runs."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 1
    os.pwrite(descriptor, f"{os.getpid():<11}\n".encode(), 0)
    boot, known, quiet_since_s = boot_id(), None, time.monotonic()
    while True:
        try:
            known = read(lease)
        except FileNotFoundError:
            if known is not None:
                kill_all(known[2], time.monotonic() + _LONGEST_SLEEP_S)
            return 0
        except (OSError, LeaseFileError):
            pass  # half written, or a failing disk: the last known lease counts
        left_s = _LONGEST_SLEEP_S if known is None else left_of(known, boot)
        if known is not None and left_s <= 0:
            found = kill_all(known[2], time.monotonic() + _LONGEST_SLEEP_S)
            if found:
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


def left_of(known: tuple[int, str, tuple[str, ...]], boot: str) -> float:
    """Return the seconds left of a lease; none for a lease of another boot."""
    return (known[0] - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / 1e9 if known[1] == boot else 0.0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
