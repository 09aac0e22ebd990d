"""A calibration: estimates any operator's time on a machine's devices from measured runs and rates.

The firmest source answers: a fit of runs of the operator's kind; else, for kinds whose work is known, a roofline of the
device's measured rates; else nothing, with the reason, and the CPU is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.features import TOUCHED, features_of
from controller.acceleration.calibration.fitting import predicted
from controller.acceleration.calibration.roofline import roofline
from controller.acceleration.calibration.values import Fit, Rates
from controller.acceleration.values import Accelerator, Compression, Growth
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator, OperatorError
from controller.cluster.operators.kinds import work_of
from dataplane.topology.values import DeviceKind

_GB: Final = 1e9
_PREFERRED: Final = ("duckdb", "numpy", "torch", "scipy", "")
"""Libraries in order of preference, for operators that do not state theirs."""
_FAR: Final = 1.5
"""Factor above the largest measured size, or below the smallest, from which a reason mentions it."""


class Side(StrEnum):
    """The data of a join that t refers to: the probe side, the build side, or both."""

    BOTH = "both"
    PROBE = "probe"
    BUILD = "build"


_OF_BUILD: Final = frozenset({"right_rows"})


@dataclass(frozen=True)
class Calibration:
    """Calibration of one machine: `machine` names it, with the number of cores in use, and `source` tells its origin.

    `basis` is the firmness of times derived from it: modelled on the measured machine, nominal for another machine's.
    """

    machine: str
    cores: int
    rates: tuple[Rates, ...] = ()
    fits: tuple[Fit, ...] = ()
    source: str = ""
    basis: Basis = Basis.MODELLED

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise CalibrationError(f"{self.machine}: {self.cores} cores", at="cores")
        for name, keys in (
            ("devices", [entry.device for entry in self.rates]),
            ("fits", [entry.key for entry in self.fits]),
        ):
            for index, key in enumerate(keys):
                if key in keys[:index]:
                    raise CalibrationError(f"{self.machine}: duplicate {_text(key)}", at=f"{name}[{index}]")

    def rates_of(self, device: DeviceKind) -> Rates | None:
        """Return a device's rates, None if unknown."""
        return next((rates for rates in self.rates if rates.device is device), None)

    @cached_property
    def _fits(self) -> dict[tuple[DeviceKind, str], list[Fit]]:
        by_kind: dict[tuple[DeviceKind, str], list[Fit]] = {}
        for fit in self.fits:
            by_kind.setdefault((fit.device, fit.kind), []).append(fit)
        return by_kind

    def fit_of(self, operator: Operator, device: DeviceKind) -> Fit | None:
        """Return the fit for an operator: its kind and format, by its library, else by the preferred one."""
        of_kind = self._fits.get((device, operator.kind), ())
        candidates = [fit for fit in of_kind if fit.number_format in {operator.number_format, None}]
        if len(candidates) <= 1:
            return candidates[0] if candidates else None
        order = (operator.library, *_PREFERRED) if operator.library else _PREFERRED
        return min(candidates, key=lambda fit: order.index(fit.library) if fit.library in order else len(order))

    def time_of(self, operator: Operator, device: DeviceKind = DeviceKind.CPU, side: Side = Side.BOTH) -> Estimate:
        """Return the seconds of one execution on one machine, data in the device's memory; unknown with the reason."""
        fit = self.fit_of(operator, device)
        try:
            if fit is None:
                estimate = roofline(operator, self.rates_of(device), device)
                return replace(estimate, basis=self.basis) if estimate.is_known else estimate
            (low, seconds, high), reasons = self._by_runs(fit, operator, side)
        except OperatorError as error:
            return Estimate.unknown(str(error))
        return Estimate(seconds, low, high, self.basis, None, reasons)

    def _by_runs(self, fit: Fit, operator: Operator, side: Side) -> tuple[tuple[float, float, float], tuple[str, ...]]:
        """Return low, seconds, high of an execution, and the reasons; raise OperatorError for missing sizes."""
        features = features_of(operator, (*fit.features, TOUCHED))
        sizes = [features[name] for name in fit.features]
        reasons = (self._source_of(fit), *_beyond(fit, sizes))
        if side is not Side.BOTH:
            sizes = [
                size if (name in _OF_BUILD) is (side is Side.BUILD) else 0.0
                for name, size in zip(fit.features, sizes, strict=True)
            ]
        return predicted(fit, sizes, features[TOUCHED]), reasons

    def t_of(self, operator: Operator, side: Side = Side.BOTH, growth: Growth = Growth.LINEAR) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input, at its own size: growth by t reproduces its time.

        That is 10 t d, 100 t^2 d for the square class, for sorts 10 t d times the depth over that of 100 MB.
        """
        fit = self.fit_of(operator, DeviceKind.CPU)
        if fit is None:
            # Rates alone do not distinguish the sides.
            side = Side.BOTH
            if not (rough := self.time_of(operator)).is_known:
                return rough
            times, reasons = rough.times, rough.reasons
        else:
            try:
                times, reasons = self._by_runs(fit, operator, side)
            except OperatorError as error:
                return Estimate.unknown(str(error))
        if (nbytes := input_bytes(operator, side)) == 0:
            return Estimate.unknown(f"{operator.name}: it reads nothing, so it has no time per 100 MB")
        low, seconds, high = (_t_of(time_s, operator, nbytes, growth) for time_s in times)
        return Estimate(seconds, low, high, self.basis, None, reasons)

    def accelerator_of(self, device: DeviceKind = DeviceKind.GPU) -> Accelerator | None:
        """Return a device in the model's form; None if neither its bus nor its parallelism is known.

        Kinds measured both on the CPU and on the device have their own factor, at the largest common size.
        """
        rates = self.rates_of(device)
        if device is DeviceKind.CPU or rates is None or rates.bus_bytes_per_s is None or rates.parallelism is None:
            return None
        compression = None
        if rates.compression is not None:
            compression = Compression(rates.compression[0], rates.compression[1] / _GB)
        return Accelerator(
            device,
            rates.parallelism.numbers[1],
            bus_gb_per_s=rates.bus_bytes_per_s.numbers[1] / _GB,
            compression=compression,
            speed_up=self.speed_ups(device),
        )

    def speed_ups(self, device: DeviceKind) -> tuple[tuple[str, float], ...]:
        """Return the device's speed-up for kinds measured on both, at the largest common size."""
        factors: dict[str, float] = {}
        for there in (fit for fit in self.fits if fit.device is device):
            plain = Operator(there.kind, there.kind, (), there.number_format)
            here = self.fit_of(plain, DeviceKind.CPU)
            if here is None or here.features != there.features or there.kind in factors:
                continue
            both = [min(pair) for pair in zip(here.most, there.most, strict=True)]
            touched = min((fit.uncached.most_bytes for fit in (here, there) if fit.uncached is not None), default=0.0)
            factors[there.kind] = predicted(here, both, touched)[1] / predicted(there, both, touched)[1]
        return tuple(sorted(factors.items()))

    def _source_of(self, fit: Fit) -> str:
        by = f" by {fit.library}" if fit.library else ""
        return f"{fit.kind} on {fit.device}{by}: fit of {fit.runs} sizes on {self.machine} ({self.cores} cores)"


def input_bytes(operator: Operator, side: Side = Side.BOTH) -> int:
    """Return the input of an execution, for a join that of one side or both; 0 if unknown."""
    shape = dict(operator.shape)
    if side is not Side.BOTH:
        name = "right" if side is Side.BUILD else "left"
        return shape.get(f"{name}_rows", 0) * shape.get(f"{name}_row_bytes", 0)
    work = work_of(operator)
    return 0 if work is None else work.read_bytes


def _t_of(seconds: float, operator: Operator, nbytes: int, growth: Growth) -> float:
    d = nbytes / _GB
    if growth is Growth.SQUARE:
        return math.sqrt(seconds / (100 * d))
    if growth is Growth.SORT:
        shape = dict(operator.shape)
        rows_per_gb = _GB / max(shape.get("row_bytes", 100), 1)
        seconds *= math.log1p(rows_per_gb / 10) / math.log1p(d * rows_per_gb)
    return seconds / (10 * d)


def _beyond(fit: Fit, features: Sequence[float]) -> tuple[str, ...]:
    """Return a note for the reader about sizes beyond all runs."""
    for name, value, least, most in zip(fit.features, features, fit.least, fit.most, strict=True):
        if value > _FAR * most > 0:
            return (f"beyond measured sizes: {value / most:.3g} times the largest {name.replace('_', ' ')}",)
        if value * _FAR < least:
            return (f"below measured sizes: {name.replace('_', ' ')} {value:.3g}, the least was {least:.3g}",)
    return ()


def _text(key: object) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return " ".join(str(part) for part in parts if part)
