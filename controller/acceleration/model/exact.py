"""The model's formulas as written, one operator at a time, in fractions: the twin of `times`.

Figures are read as the decimals they are written as: 12.8 is 64/5. Irrational logarithms (the rounds for machine counts
that are no power of the fan-in, the depth of a sort) use the nearest double.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from controller.acceleration.values import Accelerator, Growth, Machines, TransferModel, Work


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
    """Return an operator's time on the CPUs of all machines (None), or on an accelerator of each."""
    t, d, other_d, skew = _t(work), written(work.input_gb), _other_gb(work), written(work.skew)
    is_summed = machines.transfer is TransferModel.SUM
    aggregation_s, transfer_s, bus_gb = (_summed if is_summed else _by_paths)(work, machines)
    if work.stays:
        aggregation_s = transfer_s = bus_gb = Fraction(0)
    cpu = ExactTimes(_seconds(work, t, d * skew, other_d * skew), aggregation_s, transfer_s)
    if accelerator is None:
        return cpu
    local_gb = (d + other_d) * skew + output_gb(work) * (1 if work.growth is Growth.GROUPED else skew)
    return _on(accelerator, work.kind, cpu, local_gb, bus_gb)


def exact_ratio(work: Work, machines: Machines, accelerator: Accelerator) -> Fraction | None:
    """Return CPU total over accelerator total; None if that takes no time."""
    other_s = exact_times(work, machines, accelerator).total_s
    return exact_times(work, machines).total_s / other_s if other_s else None


def output_gb(work: Work) -> Fraction:
    """Return one machine's output: as given, the groups, or a tenth of its input."""
    if work.output_gb is not None:
        return written(work.output_gb)
    d = written(work.input_gb)
    if work.growth is Growth.GROUPED and work.groups is not None:
        rows = d * 10**9 / written(work.row_bytes)
        return min(written(work.groups), rows) * written(work.group_bytes) / 10**9
    return (d + _other_gb(work)) / 10


def written(value: float) -> Fraction:
    """Return a figure as the decimal as written."""
    return Fraction(repr(float(value)))


def _summed(work: Work, machines: Machines) -> tuple[Fraction, Fraction, Fraction]:
    """Return the CPU's compute and transfer times of the rounds, and the GB they would carry over a bus: T L, X."""
    d, other_d, output, rounds = written(work.input_gb), _other_gb(work), output_gb(work), _rounds(machines)
    aggregation_s = _seconds(work, _t(work), d, other_d) * rounds
    transfer_s = output * _senders(machines) * 8 * _per(machines.network.rate_gbit_per_s)
    return aggregation_s, transfer_s, (d + other_d + output) * rounds


def _by_paths(work: Work, machines: Machines) -> tuple[Fraction, Fraction, Fraction]:
    """Return the same for groups of a round at the same time; the first group has the fullest machine's output."""
    output, aggregation_s, transfer_s, bus_gb = output_gb(work), Fraction(0), Fraction(0), Fraction(0)
    merge_t = _t(work) if work.merge_s_per_100mb is None else written(work.merge_s_per_100mb)
    together = 1
    for at, members in enumerate(_groups(machines.count, machines.fan_in)):
        before, together = together, min(together * machines.fan_in, machines.count)
        parts = together if work.grows else members
        is_even = work.growth is Growth.GROUPED or (at > 0 and not work.grows)
        held = output * (parts if is_even else parts - 1 + written(work.skew))
        aggregation_s += _seconds(work, merge_t, held, Fraction(0))
        bus_gb += held + (held if work.grows else output)
        if machines.network.rounds is None:
            transfer_s += held * 8 * _per(machines.network.rate_gbit_per_s)
            continue
        way = machines.network.rounds[at]
        s_per_gb = written(way.s_per_gb)
        if work.grows and at > 0:
            s_per_gb = s_per_gb * before if way.grown_s_per_gb is None else written(way.grown_s_per_gb)
        transfer_s += held / parts * s_per_gb + written(way.delay_s)
    return aggregation_s, transfer_s, bus_gb


def _t(work: Work) -> Fraction:
    return written(work.cpu_s_per_100mb)


def _other_gb(work: Work) -> Fraction:
    return written(work.other_gb) if work.growth is Growth.HASH_JOIN else Fraction(0)


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


def _rounds(machines: Machines) -> Fraction:
    """Return log_k n: whole where n is a power of k, 1 for a k of n or more."""
    n, k = machines.count, min(machines.fan_in, machines.count)
    power, rounds = 1, 0
    while power < n:
        power, rounds = power * k, rounds + 1
    return Fraction(rounds) if power == n else written(math.log(n) / math.log(k))


def _groups(senders: int, fan_in: int) -> list[int]:
    """Return the fullest group of each round: consecutive senders, as many as the fan-in, until one is left."""
    if senders == 1:
        return []
    groups = [min(fan_in, senders - first) for first in range(0, senders, fan_in)]
    return [max(groups), *_groups(len(groups), fan_in)]


def _senders(machines: Machines) -> Fraction:
    if machines.count == 1:
        return Fraction(0)
    k = min(machines.fan_in, machines.count)
    if machines.has_finite_sum:
        return Fraction(machines.count - 1) * k / (k - 1)
    return Fraction(machines.count) * k / (k - 1)


def _on(device: Accelerator, kind: str, cpu: ExactTimes, local_gb: Fraction, rounds_gb: Fraction) -> ExactTimes:
    """Return an accelerator's time for the CPU's work, with the GB over its bus, at first and in the rounds."""
    slower = _per(device.parallelism) * written(device.relative_speed)
    if measured := dict(device.speed_up).get(kind):
        slower = _per(measured)
    bus_gb = local_gb if device.is_on_the_way else local_gb + rounds_gb
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
