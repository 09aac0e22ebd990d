"""Time of a prepared kernel: the shortest execution, after one that is checked instead of timed.

Other activity of the machine only makes executions longer: the shortest one is the operator's own time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from controller.acceleration.calibration.errors import CalibrationError
from controller.probing.kernels.loading import Checked
from dataplane.clock import NS_PER_S

Clock = Callable[[], int]
"""A monotonic clock in nanoseconds."""

_LEAST: Final = 5
_MOST: Final = 1000


def seconds_of(name: str, kernel: Checked, clock: Clock, *, budget_s: float, tolerance: float) -> tuple[float, ...]:
    """Return the seconds of single executions, in order: at least five, then until the budget is spent.

    Raise CalibrationError for a wrong output: the speed of a kernel that computes something else means nothing.
    """
    output = kernel.run(())
    if (error := kernel.accuracy(output)) > tolerance:
        raise CalibrationError(f"{name}: its output is off by {error:.3g}, {tolerance:.3g} is right")
    del output
    found: list[float] = []
    while len(found) < _LEAST or (sum(found) < budget_s and len(found) < _MOST):
        start_ns = clock()
        kernel.run(())
        found.append(max(clock() - start_ns, 1) / NS_PER_S)
    return tuple(found)


def undisturbed_s(seconds: tuple[float, ...]) -> float:
    """Return the shortest time."""
    return min(seconds)
