"""The eight worked cases: 1000 machines, fan-in 10, a GPU of parallelism 64, over Ethernet and InfiniBand.

Six of them are figures 2a to 2f, whose text states a ratio for a filter (t = 0.005 s) or a join (t = 0.2 s). The
formulas decide everywhere; if the text differs, the case says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from controller.acceleration.model.exact import exact_ratio, exact_times
from controller.acceleration.values import (
    Accelerator,
    Compression,
    Growth,
    Machines,
    Network,
    TransferModel,
    Work,
)
from dataplane.topology.values import DeviceKind

ETHERNET: Final = Network(1.0)
"""10 Gbit/s Ethernet, which carries 1 Gbit/s in practice."""
INFINIBAND: Final = Network(80.0)
"""100 Gbit/s InfiniBand, which carries 80."""
GPU: Final = Accelerator(DeviceKind.GPU, parallelism=64)
COMPRESSING_GPU: Final = Accelerator(DeviceKind.GPU, parallelism=64, compression=Compression(0.3, 0.1))
_MACHINES: Final = 1000
_TYPICAL: Final = {Growth.LINEAR: ("filter", "0.005"), Growth.SQUARE: ("join", "0.2")}


@dataclass(frozen=True, slots=True)
class Form:
    """A ratio as a function of t (or its square): (x + cpu) / (slope x + accelerator)."""

    cpu: Fraction
    slope: Fraction
    accelerator: Fraction
    is_square: bool

    def at(self, t: Fraction) -> Fraction:
        """Return the ratio for an operator that takes t seconds for 100 MB."""
        x = t**2 if self.is_square else t
        return (x + self.cpu) / (self.slope * x + self.accelerator)

    @property
    def break_even(self) -> float | None:
        """The t at which both take equally long; None if one is always faster."""
        x = (self.accelerator - self.cpu) / (1 - self.slope) if self.slope < 1 else Fraction(-1)
        if x <= 0:
            return None
        return float(x) ** 0.5 if self.is_square else float(x)

    def __str__(self) -> str:
        x = "t^2" if self.is_square else "t"
        return f"({x} + {self.cpu}) / ({x}{_factor(self.slope)} + {self.accelerator})"


@dataclass(frozen=True, slots=True)
class Case:
    """A worked case; `figure` is '' for the two that are not drawn, `stated` the text's ratio, None without one."""

    figure: str
    network: Network
    accelerator: Accelerator
    growth: Growth
    stated: float | None = None
    remark: str = ""

    @property
    def network_name(self) -> str:
        """Ethernet or InfiniBand."""
        return "Ethernet" if self.network is ETHERNET else "InfiniBand"

    @property
    def title(self) -> str:
        """The case in words."""
        packed = ", compressed" if self.accelerator.compression else ""
        return f"{self.figure or 'not drawn'}: {self.network_name}{packed}, {self.growth}"

    @property
    def operator(self) -> str:
        """The text's operator: a filter for linear, a join for square."""
        return _TYPICAL[self.growth][0]

    @property
    def t(self) -> Fraction:
        """Seconds of that operator for 100 MB."""
        return Fraction(_TYPICAL[self.growth][1])

    def work(self, t: float) -> Work:
        """Return an operator of the case; its ratio is the same for any data."""
        return Work(self.operator, self.growth, t, 1.0, kind=self.operator)

    def machines(self, transfer: TransferModel = TransferModel.SUM, *, finite: bool = False) -> Machines:
        """Return the case's machines."""
        return Machines(self.network, _MACHINES, transfer=transfer, has_finite_sum=finite)

    def form(self, transfer: TransferModel = TransferModel.SUM, *, finite: bool = False) -> Form:
        """Return the ratio as a function of t, by the exact model at t = 0 and 1."""
        machines = self.machines(transfer, finite=finite)
        idle, busy = self.work(0.0), self.work(1.0)
        cpu, device = exact_times(idle, machines).total_s, exact_times(idle, machines, self.accelerator).total_s
        unit = exact_times(busy, machines).total_s - cpu
        slope = (exact_times(busy, machines, self.accelerator).total_s - device) / unit
        return Form(cpu / unit, slope, device / unit, self.growth is Growth.SQUARE)

    def ratio(self, transfer: TransferModel = TransferModel.SUM, *, finite: bool = False) -> Fraction:
        """Return the ratio of the text's operator."""
        exact = exact_ratio(self.work(float(self.t)), self.machines(transfer, finite=finite), self.accelerator)
        assert exact is not None, "each case moves data"
        return exact


_SWAPPED: Final = (
    "the text says 3.2, which would send the filter to the GPU; its own formula gives 0.7705 and keeps it on the CPU"
    " (3.198 is the same case over Ethernet: the figures were most likely swapped)"
)
_SLIGHTLY: Final = "the text says 0.97, its own formula gives 0.987"
_TIED: Final = (
    "the text says 1, which keeps the join on the CPU; its own formula gives 1.0173, which sends it to the GPU (a tie:"
    " plans and schedulers keep it on the CPU, as their tie band is 0.02 by default)"
)
CASES: Final = (
    Case("2a", ETHERNET, GPU, Growth.LINEAR, 1.0),
    Case("2b", ETHERNET, GPU, Growth.SQUARE, 1.0, _TIED),
    Case("2c", INFINIBAND, GPU, Growth.LINEAR, 0.97, _SLIGHTLY),
    Case("2d", INFINIBAND, GPU, Growth.SQUARE, 2.3),
    Case("2e", INFINIBAND, COMPRESSING_GPU, Growth.LINEAR, 3.2, _SWAPPED),
    Case("2f", INFINIBAND, COMPRESSING_GPU, Growth.SQUARE, 1.82),
    Case("", ETHERNET, COMPRESSING_GPU, Growth.LINEAR),
    Case("", ETHERNET, COMPRESSING_GPU, Growth.SQUARE),
)
"""In the order of the worked table; the last two are not drawn."""
DRAWN: Final = tuple(case for case in CASES if case.figure)


def _factor(slope: Fraction) -> str:
    return f"/{slope.denominator}" if slope.numerator == 1 else f" * {slope}"
