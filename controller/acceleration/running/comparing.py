"""The model's prediction of a run, from trials of one worker without a network, and the measured result.

The model's figures are those that decide where operators run. t is one worker's time for its shard, the merge's t that
for copies of its result; the network is a rate, or rounds by real paths. The prediction uses nothing from the run
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.acceleration.model import Works, times
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.values import OperatorKind, Plan, Sample, Trial
from controller.acceleration.values import Growth, Machines, Network, Round, Times, TransferModel, Work
from controller.cluster.estimates import Basis
from dataplane.notebook import table_html

_GROWTHS: Final = {
    OperatorKind.FILTER: Growth.LINEAR,
    OperatorKind.AGGREGATE: Growth.GROUPED,
    OperatorKind.JOIN: Growth.HASH_JOIN,
    OperatorKind.SORT: Growth.SORT,
}
_GB: Final = 1e9
_GB_GBIT: Final = 8.0


@dataclass(frozen=True, slots=True)
class Processing:
    """Cost of networking for a machine's processor, at the share of it that the machine has.

    Seconds per GB received or sent, plus seconds per table.
    """

    receive_s_per_gb: float = 0.0
    send_s_per_gb: float = 0.0
    receive_s: float = 0.0
    send_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Seconds of one machine with all the data, and of all machines over the tree, predicted and measured."""

    one: Times
    all: Times
    one_measured_s: float
    all_measured_s: float
    processing: Processing | None = None

    @property
    def ratio(self) -> float:
        """The predicted ratio: the speed-up of all machines over one."""
        return self.one.total_s / self.all.total_s

    @property
    def measured_ratio(self) -> float:
        """The measured ratio."""
        return self.one_measured_s / self.all_measured_s

    @property
    def error(self) -> float:
        """Relative error of the predicted ratio."""
        return abs(self.ratio / self.measured_ratio - 1)

    def _repr_html_(self) -> str:
        """Show both in a notebook."""
        rows = (
            ("predicted", f"{self.one.total_s:.4g}", f"{self.all.total_s:.4g}", f"{self.ratio:.3f}"),
            ("measured", f"{self.one_measured_s:.4g}", f"{self.all_measured_s:.4g}", f"{self.measured_ratio:.3f}"),
        )
        return table_html(f"error {self.error:.1%}", ("", "one machine s", "all machines s", "ratio"), rows)


def work_of(plan: Plan, trials: Sequence[Trial], input_gb: float) -> Work:
    """Return an operator's work on shards of `input_gb`, from trials of shards of other sizes.

    t is for this size: several trial sizes separate a statement's constant time (for a join: the other side) from the
    rest. A statement without an operator's name counts as linear.
    """
    growth = Growth.LINEAR if plan.operator is None else _GROWTHS[plan.operator.kind]
    first = max(trials, key=lambda trial: trial.input_bytes)
    share = input_gb * _GB / first.input_bytes
    output_bytes = first.output_bytes * (share if plan.split.grows else 1.0)
    compute_s, fixed_s = _line(growth, [(trial.input_bytes, trial.compute_s) for trial in trials], input_gb * _GB)
    held = first.copies * output_bytes
    merge_s, _ = _line(growth, [(trial.copies * trial.output_bytes, trial.merge_s) for trial in trials], held)
    work = Work(
        plan.operator.kind.value if plan.operator else "statement",
        growth,
        _t_of(growth, input_gb * _GB, compute_s),
        input_gb,
        output_bytes / _GB,
        merge_s_per_100mb=_t_of(growth, held, merge_s),
        grows=plan.split.grows,
        basis=Basis.MEASURED,
    )
    if growth is not Growth.HASH_JOIN or not first.other_bytes:
        return work
    other_gb, own_t = first.other_bytes / _GB, _t_of(growth, input_gb * _GB, compute_s - fixed_s)
    return replace(work, cpu_s_per_100mb=own_t, other_gb=other_gb, other_s_per_100mb=fixed_s / 10 / other_gb)


def members(count: int, fan_in: int, rate_gbit_per_s: float) -> Machines:
    """Return machines of one rate, whose aggregators are members of the groups that they aggregate, like workers.

    They receive over one link everything that the others of the group send.
    """
    plain = Machines(Network(rate_gbit_per_s), count, fan_in, TransferModel.PER_PATH)
    s_per_gb = _GB_GBIT / rate_gbit_per_s
    held = (1, *plain.shares)
    rounds = tuple(
        Round((group - 1) * s_per_gb, grown_s_per_gb=(after - before) * s_per_gb)
        for group, before, after in zip(plain.groups, held, plain.shares, strict=False)
    )
    return replace(plain, network=Network(rate_gbit_per_s, rounds))


def processing_of(small: Sample, large: Sample, slower: float) -> Processing:
    """Return the costs from two tables of different sizes; `slower` is a machine's time over its processor's."""
    gb = (large.nbytes - small.nbytes) / _GB
    if gb <= 0:
        raise RunError(f"samples of {small.nbytes} and {large.nbytes} bytes: the second must be larger")
    return Processing(
        slower * max(large.received_cpu_s - small.received_cpu_s, 0.0) / gb,
        slower * max(large.sent_cpu_s - small.sent_cpu_s, 0.0) / gb,
        slower * small.received_cpu_s,
        slower * small.sent_cpu_s,
    )


def processed(machines: Machines, processing: Processing) -> Machines:
    """Return machines whose rounds by paths take their processors' networking time, if that is longer.

    Data is sent, carried and received at the same time; before that, tables one by one. Aggregators are members.
    """
    assert machines.network.rounds is not None
    held, rounds = (1, *machines.shares), []
    for at, way in enumerate(machines.network.rounds):
        others = machines.groups[at] - 1
        grown_s = machines.s_per_gb(at, grows=True)
        needed_s = max(others * processing.receive_s_per_gb, processing.send_s_per_gb)
        grown_needed_s = max(
            (held[at + 1] - held[at]) * processing.receive_s_per_gb, held[at] * processing.send_s_per_gb
        )
        delay_s = way.delay_s + others * processing.receive_s + processing.send_s
        rounds.append(Round(max(way.s_per_gb, needed_s), delay_s, max(grown_s, grown_needed_s)))
    return replace(machines, network=replace(machines.network, rounds=tuple(rounds)))


def predicted(plan: Plan, trials: Sequence[Trial], input_gb: float, machines: Machines) -> tuple[Times, Times]:
    """Return the time of one machine for all data, and that of all machines, each for `input_gb`."""
    alone = Machines(Network(machines.network.rate_gbit_per_s), 1, machines.fan_in, machines.transfer)
    whole = work_of(plan, trials, input_gb * machines.count)
    return times(Works.of([whole]), alone)[0], times(Works.of([work_of(plan, trials, input_gb)]), machines)[0]


def _line(growth: Growth, points: Sequence[tuple[float, float]], nbytes: float) -> tuple[float, float]:
    """Return the seconds for this many bytes, and their constant part, from points of bytes and seconds.

    The line through the smallest and the greatest point, plus the class's own growth; never falling, never below 0 at
    0.
    """
    (low, low_s), (high, high_s) = min(points), max(points)
    low_unit, high_unit, unit = (_unit_s(growth, size) for size in (low, high, nbytes))
    if high_unit <= 0:
        return high_s, high_s
    slope = (high_s - low_s) / (high_unit - low_unit) if high_unit > 1.01 * low_unit else high_s / high_unit
    slope = min(max(slope, 0.0), high_s / high_unit)
    fixed_s = high_s - slope * high_unit
    return fixed_s + slope * unit, fixed_s


def _t_of(growth: Growth, nbytes: float, seconds: float) -> float:
    """Return the t for which this many bytes take this long."""
    unit_s = _unit_s(growth, nbytes)
    return seconds / unit_s if unit_s else 0.0


def _unit_s(growth: Growth, nbytes: float) -> float:
    """Return the model's time for this many bytes at a t of 1."""
    unit = Work("unit", growth, 1.0, nbytes / _GB, output_gb=0.0)
    return times(Works.of([unit]), Machines(Network(1.0), 1))[0].compute_s
