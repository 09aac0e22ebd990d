"""Small files of /proc and /sys below a root folder: that of the machine, or a recorded one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path


def integer_of(text: str, base: int = 10) -> int | None:
    """Return a whole number, None for anything else."""
    try:
        return int(text, base)
    except ValueError:
        return None


def real_of(text: str) -> float | None:
    """Return a finite number, None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that has proc/ and sys/; absent or unreadable files are None, never an exception.

    Many files of /sys refuse to be read where the device does not know (a link's speed while it is down).
    """

    path: Path = Path("/")

    def text(self, *parts: str) -> str | None:
        """Return a file's text, stripped."""
        try:
            return self.path.joinpath(*parts).read_bytes().decode("utf-8", "replace").strip("\0 \t\n")
        except OSError:
            return None

    def integer(self, *parts: str, base: int = 10) -> int | None:
        """Return a file's first word as a number; `base` 0 accepts a 0x prefix."""
        words = (self.text(*parts) or "").split()
        return integer_of(words[0], base=base) if words else None

    def names(self, *parts: str) -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""
        try:
            return sorted(entry.name for entry in self.path.joinpath(*parts).iterdir())
        except OSError:
            return []

    def link(self, *parts: str) -> str | None:
        """Return the target of a symbolic link, None if there is none."""
        try:
            return str(self.path.joinpath(*parts).readlink())
        except OSError:
            return None
