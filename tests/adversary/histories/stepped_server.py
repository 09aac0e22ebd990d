"""The command line with a wall clock that another process steps.

Usage: python stepped_server.py OFFSET_FILE api serve --settings FILE

The file has nanoseconds to add to `time.time_ns` and `time.time`, which the API's server takes all its times of day
from. Nothing else of the machine moves: that would take a kernel's time namespace, which has no wall clock.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path


def step_with(file: Path) -> None:
    """Shift this process's wall clock by the offset that a file holds at the moment of each call."""
    with file.open("rb") as opened:
        offset = mmap.mmap(opened.fileno(), 8, access=mmap.ACCESS_READ)
    real_ns = time.time_ns

    def stepped_ns() -> int:
        return real_ns() + int.from_bytes(offset[:8], "little", signed=True)

    time.time_ns = stepped_ns
    time.time = lambda: stepped_ns() / 1e9


if __name__ == "__main__":
    step_with(Path(sys.argv.pop(1)))
    from controller.apps.cli import main

    main()
