"""Times of unmeasured operators from measured rates: a roofline (Williams et al., CACM 2009).

An execution takes at least as long as its bytes at the memory's rate and as its operations at the arithmetic rate. The
part of this bound that operators reach was also measured: the bound is divided by it, and its spread gives the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.acceleration.calibration.values import Rates
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator
from controller.cluster.operators.kinds import Work, work_of
from dataplane.topology.values import DeviceKind

# Minimum bytes moved by table operators with the usual database algorithms, which is more than they read.
#
# Sorting passes over the keys once for each of their bytes (radix), then gathers rows in order; random accesses to a
# table move a sector of memory each (Shanbhag et al., A Study of the Fundamental Performance Characteristics of GPUs
# and CPUs for Database Analytics, SIGMOD 2020). Numeric operators move their compulsory bytes.


_WORD: Final = 8
_ROW_NUMBER: Final = 4
_KEY_BYTES: Final = 8
_SECTOR: Final[Mapping[DeviceKind, int]] = {DeviceKind.GPU: 32}
_LINE: Final = 64
_CACHED: Final = 1 << 20
"""Bytes of groups that fit into every processor's near caches."""


def moved_bytes(operator: Operator, work: Work, device: DeviceKind) -> int:
    """Return the bytes moved between a device's memory and its processors in one execution."""
    shape, sector = dict(operator.shape), _SECTOR.get(device, _LINE)
    compulsory = work.read_bytes + work.written_bytes
    match operator.kind:
        case "sort":
            columns = -(-shape["row_bytes"] // _WORD)
            over_keys = _KEY_BYTES * (3 * _KEY_BYTES + 2 * _ROW_NUMBER)
            return shape["rows"] * (over_keys + columns * sector) + work.written_bytes
        case "join":
            looked = shape["left_rows"] + 2 * shape["right_rows"] + shape["out_rows"]
            return compulsory + looked * sector
        case "aggregate" if shape["groups"] * shape["group_bytes"] > _CACHED:
            return compulsory + 2 * shape["rows"] * sector
        case _:
            return compulsory


ARITHMETIC: Final = frozenset({"flop", "op"})
"""Units of arithmetic rates; other kinds are timed by the bytes that their algorithms move."""


def bound_s(work: Work, operator: Operator, rates: Rates) -> tuple[float, str] | None:
    """Return the least seconds of an execution, and the limiting roof; None if a required rate is unknown."""
    bounds: list[tuple[float, str]] = []
    if rates.memory_bytes_per_s is not None:
        bounds.append((moved_bytes(operator, work, rates.device) / rates.memory_bytes_per_s.numbers[1], "memory"))
    if work.unit in ARITHMETIC and work.operations:
        rate = None if operator.number_format is None else rates.operations_per_s.get(operator.number_format)
        if rate is None:
            return None
        bounds.append((work.operations / rate.numbers[1], "arithmetic"))
    return max(bounds) if rates.memory_bytes_per_s is not None else None


def roofline(operator: Operator, rates: Rates | None, device: DeviceKind) -> Estimate:
    """Return the seconds of one execution; raise OperatorError for missing sizes."""
    work, what = work_of(operator), f"{operator.kind} on {device}"
    if work is None:
        return Estimate.unknown(f"{what}: never measured, and its work is unknown")
    if rates is None:
        return Estimate.unknown(f"{what}: never measured, and no rate of the {device} is known")
    if work.operations is None and not work.read_bytes:
        return Estimate.unknown(f"{what}: never measured, and its operations depend on the data")
    if (bound := bound_s(work, operator, rates)) is None:
        format_ = operator.number_format or "its numbers"
        return Estimate.unknown(f"{what}: never measured, and no rate of memory or of {format_} is known")
    seconds, roof = bound
    reason = f"{what}: roofline, bounded by {roof}"
    if work.operations is None:
        reason += ", its operations not counted"
    if rates.attained is None:
        return Estimate.exactly(seconds, Basis.NOMINAL, f"{reason}: no operator fully reaches it")
    low, middle, high = rates.attained.numbers
    reason += f", of which operators reached {middle:.0%} ({low:.0%} to {high:.0%})"
    return Estimate(seconds / middle, seconds / high, seconds / low, Basis.MODELLED, None, (reason,))
