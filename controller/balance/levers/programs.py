"""Levers of a program's own: the precision in which PyTorch computes (autocast), and how much it takes in at once.

They act inside the program that owns them: it opens `autocast()` around a step and asks `batch.size` before each.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved
from controller.balance.values import LeverKind, Precision

_LEVELS: Final = (Precision.FP16, Precision.FP32)
"""Between which autocast chooses; the others are other weights, which no switch makes of a running program's."""
_ORDER: Final = tuple(Precision)


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

    def release(self) -> None:
        """Compute as at the start."""
        self._place = self._start


class BatchSize:
    """How many items a program takes in at once; a step doubles or halves it.

    Up, as precision is: larger batches cost the bus less for each item and give the cores more to do at once.
    """

    def __init__(self, size: int, *, low: int = 1, high: int) -> None:
        self.kind, self.name = LeverKind.PRECISION, "batch size"
        if not 1 <= low <= size <= high:
            raise LeverError(self.name, f"1 <= low <= size <= high is wanted: they are {low}, {size} and {high}")
        self._found, self._steps, self._down, self._up = size, 0, 0, 0
        while size >> (self._down + 1) >= low:
            self._down += 1
        while size << (self._up + 1) <= high:
            self._up += 1

    @property
    def size(self) -> int:
        """Items of the next batch."""
        return self._found << self._steps if self._steps >= 0 else self._found >> -self._steps

    def read(self) -> Standing:
        """Return how often it was doubled since the start."""
        return Standing(self._steps, -self._down, self._up)

    def move(self, by: float) -> Moved:
        """Double it so many times (halve it)."""
        standing = self.read()
        self._steps = int(standing.place(self._steps + by))
        return moved(standing, by, self._steps)

    def release(self) -> None:
        """Take in as many as at the start."""
        self._steps = 0
