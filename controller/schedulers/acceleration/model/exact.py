"""The model as its formulas stand, one operator at a time, in fractions: the twin of `times`.

Figures are read as the decimals that they are written as: 12.8 is 64/5. Logarithms that are no fraction (the rounds of
machines that are no power of the fan-in, the depth of a sort) are those of the nearest double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from controller.schedulers.acceleration.model.times import rounds_of
from controller.schedulers.acceleration.values import Accelerator, Growth, Machines, TransferModel, Work


@dataclass(frozen=True, slots=True)
class ExactTimes:
    """Seconds in parts, as in `Times`."""

    compute_s: Fraction
    aggregation_s: Fraction
    transfer_s: Fraction
    bus_s: Fraction = Fraction(0)
    compression_s: Fraction = Fraction(0)

    @property
    def total_s(self) -> Fraction:
        """All parts, one after the other."""
        return self.compute_s + self.aggregation_s + self.transfer_s + self.bus_s + self.compression_s


def exact_times(work: Work, machines: Machines, accelerator: Accelerator | None = None) -> ExactTimes:
    """Return what an operator takes on the CPUs of all machines (None), or on an accelerator of each."""
    t, d, skew = written(work.cpu_s_per_100mb), written(work.input_gb), written(work.skew)
    other_d = written(work.other_gb) if work.growth is Growth.HASH_JOIN else Fraction(0)
    output, is_grouped = output_gb(work), work.growth is Growth.GROUPED
    alone_s = _seconds(work, t, d * skew, other_d * skew)
    aggregation_s, transfer_s, bus_gb = Fraction(0), Fraction(0), Fraction(0)
    if machines.transfer is TransferModel.SUM:
        rounds = written(rounds_of(machines))
        aggregation_s = _seconds(work, t, d, other_d) * rounds
        transfer_s = output * _senders(machines) * 8 * _per(machines.network.rate_gbit_per_s)
        bus_gb = (d + other_d + output) * rounds
    else:
        merge_t = t if work.merge_s_per_100mb is None else written(work.merge_s_per_100mb)
        for at, members in enumerate(machines.groups):
            parts = members if at or is_grouped else members - 1 + skew
            held = output * parts
            aggregation_s += _seconds(work, merge_t, held, Fraction(0))
            bus_gb += held + output
            if machines.network.rounds is None:
                transfer_s += held * 8 * _per(machines.network.rate_gbit_per_s)
            else:
                way = machines.network.rounds[at]
                transfer_s += held / members * written(way.s_per_gb) + written(way.delay_s)
    if accelerator is None:
        return ExactTimes(alone_s, aggregation_s, transfer_s)
    local_gb = (d + other_d) * skew + output * (1 if is_grouped else skew)
    return _on(accelerator, work.kind, ExactTimes(alone_s, aggregation_s, transfer_s, bus_gb), local_gb)


def exact_ratio(work: Work, machines: Machines, accelerator: Accelerator) -> Fraction | None:
    """Return CPU total over accelerator total; None where that takes no time."""
    other_s = exact_times(work, machines, accelerator).total_s
    return exact_times(work, machines).total_s / other_s if other_s else None


def output_gb(work: Work) -> Fraction:
    """Return what one machine puts out: what is given, the groups, or a tenth of what goes in."""
    if work.output_gb is not None:
        return written(work.output_gb)
    d = written(work.input_gb)
    if work.growth is Growth.GROUPED and work.groups is not None:
        rows = d * 10**9 / written(work.row_bytes)
        return min(written(work.groups), rows) * written(work.group_bytes) / 10**9
    return (d + (written(work.other_gb) if work.growth is Growth.HASH_JOIN else 0)) / 10


def written(value: float) -> Fraction:
    """Return a figure as the decimal that it is written as."""
    return Fraction(repr(float(value)))


def _seconds(work: Work, t: Fraction, d: Fraction, other_d: Fraction) -> Fraction:
    match work.growth:
        case Growth.LINEAR | Growth.GROUPED:
            return 10 * t * d
        case Growth.SQUARE:
            return 100 * t**2 * d
        case Growth.SORT:
            rows_per_gb = 10**9 / written(work.row_bytes)
            depth = math.log1p(d * rows_per_gb) / math.log1p(rows_per_gb / 10)
            return 10 * t * d * written(depth)
        case Growth.HASH_JOIN:
            other_t = t if work.other_s_per_100mb is None else written(work.other_s_per_100mb)
            return 10 * (t * d + other_t * other_d)


def _senders(machines: Machines) -> Fraction:
    if machines.count == 1:
        return Fraction(0)
    k = machines.effective_fan_in
    if machines.has_finite_sum:
        return Fraction(machines.count - 1) * k / (k - 1)
    return Fraction(machines.count) * k / (k - 1)


def _on(device: Accelerator, kind: str, cpu: ExactTimes, local_gb: Fraction) -> ExactTimes:
    """Turn the CPU's times, with what the rounds carry over the bus in place of `bus_s`, into an accelerator's."""
    slower = _per(device.parallelism) * written(device.relative_speed)
    if measured := dict(device.speed_up).get(kind):
        slower = _per(measured)
    bus_gb = local_gb if device.is_on_the_way else local_gb + cpu.bus_s
    packed, ratio = Fraction(0), Fraction(1)
    if device.compression is not None:
        packed = local_gb * _per(device.compression.gb_per_s)
        ratio = written(device.compression.ratio)
    return ExactTimes(
        cpu.compute_s * slower,
        cpu.aggregation_s * slower,
        cpu.transfer_s * ratio,
        bus_gb * _per(device.bus_gb_per_s),
        packed,
    )


def _per(rate: float) -> Fraction:
    """Return one over a rate, 0 for an infinite one."""
    return Fraction(0) if math.isinf(rate) else 1 / written(rate)
