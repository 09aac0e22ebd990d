"""Caps that drivers keep in files of /sys, such as a highest clock or a limit of power, as one lever.

What the kernel makes of a value is read back: it may round, clamp, ignore or refuse it.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.values import LeverKind

READ_ONLY: Final = "its settings lack set: true"
_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
_GRAIN: Final = 1e-9


@dataclass(frozen=True, slots=True)
class CapFile:
    """A file with a cap, and its range, in the lever's unit; 0 in the file means none where `is_off_at_0`."""

    path: tuple[str, ...]
    low: float
    high: float
    is_off_at_0: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """A file that must hold a word for caps to count, such as a zone's `enabled`."""

    path: tuple[str, ...]
    word: str


class FileCaps:
    """Caps that move together, each within its own range; `per_unit` is what a file counts for a MHz or a watt.

    Raises LeverError, on reading, for a file without a number.
    """

    def __init__(
        self,
        kind: LeverKind,
        name: str,
        files: Sequence[CapFile],
        root: Root,
        *,
        per_unit: int = 1,
        may_set: bool = False,
        switch: Switch | None = None,
    ) -> None:
        self.kind, self.name, self._files, self._root = kind, name, tuple(files), root
        self._per_unit, self._may_set, self._switch = per_unit, may_set, switch
        self._unit = "W" if kind is LeverKind.POWER else "MHz"
        self._found = [self._number(file.path) for file in self._files]
        self._found_word = None if switch is None else self._root.text(*switch.path)
        self._has_moved, self._refusal = False, ""

    def read(self) -> Standing:
        """Return the highest of the caps, and the range of all."""
        value = max(self._cap(file) for file in self._files)
        low, high = min(file.low for file in self._files), max(file.high for file in self._files)
        why_not = self._why_not()
        return Standing(value, low, high, 1.0, not why_not, why_not)

    def move(self, by: float) -> Moved:
        """Raise (lower) the caps by this much; the kernel reports where they are then."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = standing.place(standing.value + by)
        if target == standing.value:
            return moved(standing, by, target)
        try:
            self._turn_on()
            for file in self._files:
                self._write(file.path, str(round(min(max(target, file.low), file.high) * self._per_unit)))
                self._has_moved = True
        except _RefusedError as error:
            self._refusal = str(error)
            return Moved(0.0, by, self._refusal)
        now = self.read().value
        if math.isclose(now, standing.value, rel_tol=_GRAIN):
            return Moved(0.0, by, f"the kernel stays at {now:g} {self._unit}")
        return moved(standing, by, now)

    def release(self, *, always: bool = False) -> None:
        """Restore the original caps, if this lever ever moved them."""
        if not (self._has_moved or (always and self._may_set and not self._refusal)):
            return
        for file, number in zip(self._files, self._found, strict=True):
            self._write(file.path, str(number))
        if self._switch is not None and self._found_word is not None:
            self._write(self._switch.path, self._found_word.strip())
        self._has_moved = False

    def _turn_on(self) -> None:
        switch = self._switch
        if switch is not None and (self._root.text(*switch.path) or switch.word).strip() != switch.word:
            self._write(switch.path, switch.word)

    def _write(self, path: tuple[str, ...], text: str) -> None:
        file = self._root.path.joinpath(*path)
        try:
            file.write_text(f"{text}\n")
        except OSError as error:
            problem = f"{file} cannot be written: {error.strerror}"
            if error.errno in _REFUSALS:
                raise _RefusedError(self.name, f"the kernel refuses: {problem}") from error
            raise LeverError(self.name, problem) from error

    def _cap(self, file: CapFile) -> float:
        number = self._number(file.path)
        return file.high if file.is_off_at_0 and not number else number / self._per_unit

    def _number(self, path: tuple[str, ...]) -> int:
        number = self._root.integer(*path)
        if number is None or number < 0:
            raise LeverError(self.name, f"/{'/'.join(path)} holds no number, or may not be read")
        return number

    def _why_not(self) -> str:
        if not self._may_set:
            return READ_ONLY
        if self._refusal:
            return self._refusal
        paths = [self._root.path.joinpath(*file.path) for file in self._files]
        refused_at = next((path for path in paths if not os.access(path, os.W_OK)), None)
        return "" if refused_at is None else f"no permission to write {refused_at}"


class _RefusedError(LeverError):
    """The kernel refuses a change for good, such as of a limit that firmware has locked."""

    def __str__(self) -> str:
        """Return the reason alone: a lever's result names the lever."""
        return self.problem
