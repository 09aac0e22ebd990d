"""Times of unmeasured operators from measured rates: a roofline (Williams et al., CACM 2009).

An execution takes at least as long as its bytes at the memory's rate and as its operations at the arithmetic rate. The
part of this bound that operators reach was also measured: the bound is divided by it, and its spread gives the bounds.
"""

from __future__ import annotations

from typing import Final

from controller.acceleration.calibration.moving import moved_bytes
from controller.acceleration.calibration.values import Rates
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import Work, work_of
from dataplane.topology.values import DeviceKind

ARITHMETIC: Final = frozenset({"flop", "op"})
"""Units of arithmetic rates; other kinds are timed by the bytes that their algorithms move."""


def bound_s(work: Work, operator: Operator, rates: Rates) -> tuple[float, str] | None:
    """Return the least seconds of an execution, and the limiting roof; None if a required rate is unknown."""
    found: list[tuple[float, str]] = []
    if rates.memory_bytes_per_s is not None:
        found.append((moved_bytes(operator, work, rates.device) / rates.memory_bytes_per_s.numbers[1], "memory"))
    if work.unit in ARITHMETIC and work.operations:
        rate = None if operator.number_format is None else rates.operations_per_s.get(operator.number_format)
        if rate is None:
            return None
        found.append((work.operations / rate.numbers[1], "arithmetic"))
    return max(found) if rates.memory_bytes_per_s is not None else None


def roofline(operator: Operator, rates: Rates | None, device: DeviceKind) -> Estimate:
    """Return the seconds of one execution; raise OperatorError for missing sizes."""
    work, what = work_of(operator), f"{operator.kind} on {device}"
    if work is None:
        return Estimate.unknown(f"{what}: never measured, and nothing is known of its work: no figure")
    if rates is None:
        return Estimate.unknown(f"{what}: never measured, and no rate of the {device} is known: no figure")
    if work.operations is None and not work.read_bytes:
        return Estimate.unknown(f"{what}: never measured, and its operations depend on the data: no figure")
    if (found := bound_s(work, operator, rates)) is None:
        format_ = operator.number_format or "its numbers"
        return Estimate.unknown(f"{what}: never measured, and no rate of memory or of {format_} is known: no figure")
    seconds, roof = found
    reason = f"{what}: roofline, bounded by {roof}"
    if work.operations is None:
        reason += ", its operations not counted"
    if rates.attained is None:
        return Estimate.exactly(seconds, Basis.NOMINAL, f"{reason}: no operator reaches it wholly")
    low, middle, high = rates.attained.numbers
    reason += f", of which operators reached {middle:.0%} ({low:.0%} to {high:.0%})"
    return Estimate(seconds / middle, seconds / high, seconds / low, Basis.MODELLED, None, (reason,))
