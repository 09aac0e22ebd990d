"""Work of operators: counts, and the definition of operator kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Sizes = Mapping[str, int]


class Counting(StrEnum):
    """Meaning of a count of operations: by definition, by convention, or a lower bound for any algorithm."""

    EXACT = "exact"
    NOMINAL = "nominal"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one execution: operations of a unit ("flop", on integers "op", "comparison", ...), bytes read, written.

    `operations` is None if their number depends on the algorithm; otherwise `counting` says what the number means.
    """

    operations: int | None
    unit: str
    counting: Counting
    read_bytes: int
    written_bytes: int

    @property
    def intensity(self) -> float | None:
        """Operations per byte of compulsory traffic (Williams et al., Roofline, CACM 2009), None if unknown."""
        nbytes = self.read_bytes + self.written_bytes
        return None if self.operations is None or nbytes == 0 else self.operations / nbytes


@dataclass(frozen=True, slots=True)
class Kind:
    """A known kind: its computation, the sizes in its shape, and its work as functions of these.

    `traffic` returns bytes read and written; its second argument is the width of a number in bytes (4 bits are half a
    byte). `optional` are sizes that a shape may omit, with their defaults. `source` is the reference of the count;
    kinds that work on rows of tables or on bytes (`of_bytes`) need no number format.
    """

    meaning: str
    sizes: tuple[str, ...]
    operations: Callable[[Sizes], int] | None
    traffic: Callable[[Sizes, float], tuple[float, float]]
    source: str
    unit: str = "flop"
    counting: Counting = Counting.EXACT
    optional: tuple[tuple[str, int], ...] = ()
    of_bytes: bool = False
