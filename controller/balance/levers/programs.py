"""Levers inside a program: the precision in which PyTorch computes (autocast), and its batch size.

They act in the program that owns them: it opens `autocast()` around a step and reads `batch.size` before each.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved
from controller.balance.values import LeverKind, Precision

_LEVELS: Final = (Precision.FP16, Precision.FP32)
"""Precisions that autocast switches between; others need other weights, which no switch gives a running program."""
_ORDER: Final = tuple(Precision)
_GRAIN: Final = 1e-9


class Autocast:
    """PyTorch's autocast as steps of precision: half (fp16 or bfloat16) or fp32, if the program allows them.

    `half` is torch.float16 or torch.bfloat16, `device_type` as in torch.autocast. Raises LeverError for precisions that
    autocast does not provide.
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
        other = next((precision for precision in allowed if precision not in _LEVELS), None)
        if other is not None or start not in allowed:
            what = (
                f"autocast supports fp16 and fp32, not {other}"
                if other
                else f"the initial precision {start} is not allowed"
            )
            raise LeverError(self.name, what)
        self._allowed = tuple(sorted(set(allowed), key=_ORDER.index))
        self._half, self._device_type = half, device_type
        self._start = self._place = self._allowed.index(start)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Precision of each of its positions."""
        return self._allowed

    @property
    def precision(self) -> Precision:
        """Precision of the next step."""
        return self._allowed[self._place]

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context for a step."""
        if self.precision is Precision.FP32:
            return nullcontext()
        import torch  # noqa: PLC0415 - called by the owning program

        context: AbstractContextManager[Any] = torch.autocast(self._device_type, dtype=self._half)
        return context

    def read(self) -> Standing:
        """Return the index of the current precision among the allowed ones, fastest first."""
        return Standing(self._place, 0, len(self._allowed) - 1)

    def move(self, by: float) -> Moved:
        """Raise (lower) the precision by this many steps, from the program's next step on."""
        standing = self.read()
        self._place = int(standing.place(self._place + by))
        return moved(standing, by, self._place)

    def release(self, *, always: bool = False) -> None:  # noqa: ARG002 - no other process moves it
        """Restore the initial precision."""
        self._place = self._start


class BatchSize:
    """Number of items per batch; `per_doubling` steps double it, or halve it.

    Up, like precision: larger batches cost the bus less per item and give the cores more parallel work.
    """

    def __init__(self, size: int, *, low: int = 1, high: int, per_doubling: int = 1) -> None:
        self.kind, self.name = LeverKind.PRECISION, "batch size"
        if not 1 <= low <= size <= high:
            raise LeverError(self.name, f"1 <= low <= size <= high required, got {low}, {size} and {high}")
        if per_doubling < 1:
            raise LeverError(self.name, f"{per_doubling} steps per doubling, at least 1 needed")
        self._found, self._steps, self._per_doubling = size, 0, per_doubling
        self._down = math.floor(per_doubling * math.log2(size / low) + _GRAIN)
        self._up = math.floor(per_doubling * math.log2(high / size) + _GRAIN)

    @property
    def ratio(self) -> float:
        """Factor of one step."""
        return float(2 ** (1 / self._per_doubling))

    @property
    def size(self) -> int:
        """Items of the next batch."""
        return round(self._found * self.ratio**self._steps)

    def read(self) -> Standing:
        """Return the number of steps above the initial size."""
        return Standing(self._steps, -self._down, self._up)

    def move(self, by: float) -> Moved:
        """Increase (decrease) the batch by this many steps."""
        standing = self.read()
        self._steps = int(standing.place(self._steps + by))
        return moved(standing, by, self._steps)

    def release(self, *, always: bool = False) -> None:  # noqa: ARG002 - no other process moves it
        """Restore the initial size."""
        self._steps = 0
