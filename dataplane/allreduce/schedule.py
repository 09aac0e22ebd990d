"""Order of an all-reduce's items, which every worker derives from the same results and so identically.

Blocks of 256 values form groups of 256. For each group one item agrees on exponents, and on which blocks have
non-finite values; then come its blocks that are not all zero, and an item of classes for each with non-finite values.
The exponents of the next group but one are requested behind a group's blocks, so that no worker waits for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.formats import ZERO

GROUP: Final = 256
_AHEAD: Final = 2


class ItemKind(Enum):
    """Content of an item."""

    EXPONENTS = "exponents"
    BLOCK = "block"
    CLASSES = "classes"


@dataclass(frozen=True, slots=True)
class Part:
    """One item: of group `at` if it carries exponents, else of block `at`."""

    what: ItemKind
    at: int


class Schedule:
    """The items of `blocks` blocks known so far; each settled group of exponents adds more."""

    def __init__(self, blocks: int) -> None:
        self._groups = -(-blocks // GROUP)
        self._blocks = blocks
        self._settled: dict[int, tuple[NDArray[np.uint16], NDArray[np.uint16]]] = {}
        self._next = 0
        self.parts = [Part(ItemKind.EXPONENTS, group) for group in range(min(_AHEAD, self._groups))]

    @property
    def is_known(self) -> bool:
        """True if `parts` is complete."""
        return self._next == self._groups

    def settle(self, group: int, exponents: NDArray[np.uint16], marks: NDArray[np.uint16]) -> None:
        """Record the agreed exponents and marks of a group's blocks; groups may be settled in any order, each once."""
        self._settled[group] = exponents, marks
        while self._next in self._settled:
            self._append(self._next, *self._settled[self._next])
            self._next += 1

    def _append(self, group: int, exponents: NDArray[np.uint16], marks: NDArray[np.uint16]) -> None:
        first = group * GROUP
        count = min(GROUP, self._blocks - first)
        self.parts += [Part(ItemKind.BLOCK, first + int(at)) for at in np.flatnonzero(exponents[:count] != ZERO)]
        self.parts += [Part(ItemKind.CLASSES, first + int(at)) for at in np.flatnonzero(marks[:count])]
        if group + _AHEAD < self._groups:
            self.parts.append(Part(ItemKind.EXPONENTS, group + _AHEAD))
