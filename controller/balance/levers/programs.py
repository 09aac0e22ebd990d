"""Levers of a program's own: the precision in which PyTorch computes (autocast), and how much it takes in at once.

They act inside the program that owns them: it opens `autocast()` around a step and asks `batch.size` before each.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved
from controller.balance.values import LeverKind, Precision

_LEVELS: Final = (Precision.FP16, Precision.FP32)
"""Between which autocast chooses; the others are other weights, which no switch makes of a running program's."""
_ORDER: Final = tuple(Precision)
_GRAIN: Final = 1e-9


class Autocast:
    """PyTorch's autocast as steps of precision: half (fp16 or bfloat16) or fp32, of those that the program allows.

    `half` is torch.float16 or torch.bfloat16, `device_type` as torch.autocast has it. Raises LeverError for precisions
    that autocast does not give.
    """

    def __init__(
        self,
        half: Any,  # noqa: ANN401 - a dtype of PyTorch, which need not be installed
        *,
        device_type: str = "cuda",
        allowed: tuple[Precision, ...] = _LEVELS,
        start: Precision = Precision.FP32,
    ) -> None:
        self.kind, self.name = LeverKind.PRECISION, f"autocast on {device_type}"
        other = next((one for one in allowed if one not in _LEVELS), None)
        if other is not None or start not in allowed:
            what = f"autocast has fp16 and fp32, not {other}" if other else f"{start} is not allowed, to start with"
            raise LeverError(self.name, what)
        self._allowed = tuple(sorted(set(allowed), key=_ORDER.index))
        self._half, self._device_type = half, device_type
        self._start = self._place = self._allowed.index(start)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """What each of its places computes in."""
        return self._allowed

    @property
    def precision(self) -> Precision:
        """The precision that the next step computes in."""
        return self._allowed[self._place]

    def autocast(self) -> AbstractContextManager[Any]:
        """Return what a step is to run in."""
        if self.precision is Precision.FP32:
            return nullcontext()
        import torch  # noqa: PLC0415 - the program that has it calls this

        found: AbstractContextManager[Any] = torch.autocast(self._device_type, dtype=self._half)
        return found

    def read(self) -> Standing:
        """Return which of the allowed precisions it is, counted from the quickest."""
        return Standing(self._place, 0, len(self._allowed) - 1)

    def move(self, by: float) -> Moved:
        """Compute so many steps more exactly (less exactly), from the next step of the program on."""
        standing = self.read()
        self._place = int(standing.place(self._place + by))
        return moved(standing, by, self._place)

    def release(self, *, always: bool = False) -> None:  # noqa: ARG002 - no other process moves it
        """Compute as at the start."""
        self._place = self._start


class BatchSize:
    """How many items a program takes in at once; `per_doubling` steps double it, or halve it.

    Up, as precision is: larger batches cost the bus less for each item and give the cores more to do at once.
    """

    def __init__(self, size: int, *, low: int = 1, high: int, per_doubling: int = 1) -> None:
        self.kind, self.name = LeverKind.PRECISION, "batch size"
        if not 1 <= low <= size <= high:
            raise LeverError(self.name, f"1 <= low <= size <= high is wanted: they are {low}, {size} and {high}")
        if per_doubling < 1:
            raise LeverError(self.name, f"{per_doubling} steps double nothing")
        self._found, self._steps, self._per_doubling = size, 0, per_doubling
        self._down = math.floor(per_doubling * math.log2(size / low) + _GRAIN)
        self._up = math.floor(per_doubling * math.log2(high / size) + _GRAIN)

    @property
    def ratio(self) -> float:
        """By how much a step multiplies it."""
        return float(2 ** (1 / self._per_doubling))

    @property
    def size(self) -> int:
        """Items of the next batch."""
        return round(self._found * self.ratio**self._steps)

    def read(self) -> Standing:
        """Return by how many steps it is above what it was at the start."""
        return Standing(self._steps, -self._down, self._up)

    def move(self, by: float) -> Moved:
        """Take in more (less) by so many steps."""
        standing = self.read()
        self._steps = int(standing.place(self._steps + by))
        return moved(standing, by, self._steps)

    def release(self, *, always: bool = False) -> None:  # noqa: ARG002 - no other process moves it
        """Take in as many as at the start."""
        self._steps = 0
