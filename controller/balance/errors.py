"""Errors of balancing transfer and compute load.

ControllerError
└── BalanceError       a balancing request failed
    ├── SampleError    a unit's report is invalid: names the unit
    ├── GainsError     gains of a controller are refused: out of range, against the expert rule, or unstable
    ├── ResponseError  a recorded response cannot be judged or tuned from
    ├── RuleError      a regulation rule is wrong: names interval or lever
    ├── PlantError     a plant model's values are wrong
    ├── LeverError     a lever cannot be read or moved: names the lever
    └── HistoryError   the history of balancing cannot be opened, read or written: names the file
"""

from __future__ import annotations

from controller.common.errors import ControllerError


class BalanceError(ControllerError):
    """A balancing request failed."""


class SampleError(BalanceError):
    """A unit's report is invalid; the text names the unit."""

    def __init__(self, unit: str, problem: str) -> None:
        self.unit, self.problem = unit, problem
        super().__init__(f"unit {unit}: {problem}" if unit else f"a unit's sample: {problem}")


class GainsError(BalanceError, ValueError):
    """Gains of a controller are refused; the text names them and the reason. In settings, file and key precede it."""


class ResponseError(BalanceError):
    """A recorded response cannot be judged, or does not determine gains."""


class RuleError(BalanceError):
    """A regulation rule is wrong; the text names the interval or the lever."""


class PlantError(BalanceError):
    """Values of a plant model are wrong; the text names the key."""


class LeverError(BalanceError):
    """A lever cannot be read or moved; the text names it."""

    def __init__(self, lever: str, problem: str) -> None:
        self.lever, self.problem = lever, problem
        super().__init__(f"lever {lever}: {problem}")


class HistoryError(BalanceError):
    """The history of balancing cannot be opened, read or written; the text names the file."""
