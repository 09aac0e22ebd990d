"""The folders of control groups, in every hierarchy that is mounted here; those that are empty go."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def group_folders(group: str) -> tuple[str, ...]:
    """Return the folders of a control group: one in each hierarchy, whether or not it is there."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            found.add(f"{before.split()[4]}{group}")
    return tuple(sorted(found))


def remove_empty(group: str) -> None:
    """Remove a control group and those below it, in every hierarchy; what has processes stays."""
    for top in group_folders(group):
        for folder, _, _ in os.walk(top, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
