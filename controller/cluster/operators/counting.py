"""What is counted of an operator: its work, and what a kind of operators says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

Sizes = Mapping[str, int]


class Counting(StrEnum):
    """What a count of operations is: that of the definition, a convention, or what no algorithm gets below."""

    EXACT = "exact"
    NOMINAL = "nominal"
    LOWER_BOUND = "lower bound"


@dataclass(frozen=True, slots=True)
class Work:
    """What an execution takes: operations of a unit ("flop", on integers "op", "comparison", ...), bytes read, written.

    `operations` is None where their number depends on the algorithm, `counting` says what number it is else.
    """

    operations: int | None
    unit: str
    counting: Counting
    read_bytes: int
    written_bytes: int

    @property
    def intensity(self) -> float | None:
        """Operations a byte of compulsory traffic (Williams et al., Roofline, CACM 2009), None if not known."""
        nbytes = self.read_bytes + self.written_bytes
        return None if self.operations is None or nbytes == 0 else self.operations / nbytes


@dataclass(frozen=True, slots=True)
class Kind:
    """A known kind: what it computes, the sizes that its shape has, and its work as functions of these.

    `traffic` returns bytes read and written; its second argument is the width of a number in bytes (4 bits are half a
    byte). `optional` are sizes that a shape may leave out, with what they are then. `source` says where the count is
    from; kinds that work on rows of tables or on bytes (`of_bytes`) need no number format.
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
