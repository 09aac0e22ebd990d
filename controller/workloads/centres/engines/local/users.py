"""Users of jobs: each attempt has its own number, from a range in which the machine has no account."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from controller.workloads.centres.errors import EngineError

_DEFAULTS: Final = ((1_900_000_000, 4096), (60_600, 512))
"""Unused ranges according to systemd's UIDS-GIDS.md; the second for machines with no more than 65,536 numbers."""
_ACCOUNTS: Final = (("etc/passwd", 2), ("etc/group", 2))
_RANGES: Final = ("etc/subuid", "etc/subgid")
_FIELDS: Final = 3


def uids_of(wanted: tuple[int, int] | None, root: Path = Path("/")) -> range:
    """Return the range of jobs' numbers: the wanted one, otherwise the first default that is free.

    Raises EngineError for a range in which the machine has an account, or lacks numbers.
    """
    problems = []
    for first, count in _DEFAULTS if wanted is None else (wanted,):
        found = range(first, first + count)
        problem = _problem_of(found, root)
        if problem is None:
            return found
        problems.append(f"{first} to {found[-1]}: {problem}")
    raise EngineError("local", f"local.uids: {'; '.join(problems)}")


def free_uid(uids: range, taken: Collection[int]) -> int:
    """Return a number without a job or process on this machine; raise EngineError if there is none.

    Another centre's agent may draw from the same range, so the search starts at a random place, not at the first
    number.
    """
    taken = {*taken, *_running()}
    start = secrets.randbelow(len(uids))
    for place in range(len(uids)):
        uid = uids[(start + place) % len(uids)]
        if uid not in taken:
            return uid
    raise EngineError("local", f"local.uids: all {len(uids)} numbers are taken by jobs that are kept")


def _problem_of(uids: range, root: Path) -> str | None:
    for file, name, numbers in _taken(root):
        if numbers.start < uids.stop and uids.start < numbers.stop:
            return f"{name} of /{file} has {max(numbers.start, uids.start)}"
    for file in ("uid_map", "gid_map"):
        if not _is_mapped(uids, (root / "proc/self" / file).read_text(encoding="ascii")):
            return f"this machine has not all of these numbers (/proc/self/{file})"
    return None


def _taken(root: Path) -> Iterator[tuple[str, str, range]]:
    """Yield file, name and numbers of accounts, and of ranges assigned to accounts."""
    for file, place in _ACCOUNTS:
        for fields in _lines(root / file):
            if len(fields) > place and fields[place].isdigit():
                yield file, fields[0], range(int(fields[place]), int(fields[place]) + 1)
    for file in _RANGES:
        for fields in _lines(root / file):
            if len(fields) == _FIELDS and fields[1].isdigit() and fields[2].isdigit():
                yield file, fields[0], range(int(fields[1]), int(fields[1]) + int(fields[2]))


def _lines(path: Path) -> Iterator[list[str]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    yield from (line.split(":") for line in text.splitlines())


def _is_mapped(uids: range, text: str) -> bool:
    """Return whether one line of a uid_map has all of these numbers."""
    for line in text.splitlines():
        first, _, count = (int(word) for word in line.split())
        if first <= uids.start and uids.stop <= first + count:
            return True
    return False


def _running() -> set[int]:
    """Return the users of all processes."""
    found = set()
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with suppress(OSError):  # it has ended
                    found.add(entry.stat().st_uid)
    return found
