"""Values of the acceleration model: operators' work, machines, accelerators, times and decisions.

GB are 10^9 bytes, 100 MB a tenth of one. Figures are decimals as written: the exact twin reads 0.3 as 3/10. A rate may
be infinite, so that its transfers take no time; zero, negative and non-numeric rates are errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind

CPU: Final = DeviceKind.CPU.value
SWITCH: Final = "switch"
"""The choice that belongs to no single machine: sums added up by the network.

Accelerators that compute the parts precede it, as in gpu+switch.
"""
OUTPUT_SHARE: Final = 0.1
"""Output of an operator as a share of its input, if not given."""
MOST_MACHINES: Final = 10_000_000
TIE_BAND: Final = 0.02
"""Tie band of hardware that states none: by how much a ratio above 1 may still be a tie, which the CPU keeps.

Predicted transfers alone are off by 2.4 % on average, so a smaller gain may be none, while moving data to a device is
certain to cost. It is also the least round band that gives the specification's verdict at figure 2b (1.0173: the CPU).
"""


class Growth(StrEnum):
    """An operator's class: the growth of its CPU time with its data, from `t`, seconds for 100 MB, and `d` in GB.

    linear: 10 t d (filter). square: 100 t^2 d, as the model's formula has it (join). sort: n log n in rows, equal to
    linear at 100 MB. hash-join: linear in both sides, each with its own t. grouped: linear in its input, and its output
    is by the number of groups instead of a share of the input.
    """

    LINEAR = "linear"
    SQUARE = "square"
    SORT = "sort"
    HASH_JOIN = "hash-join"
    GROUPED = "grouped"


class TransferModel(StrEnum):
    """Transfer of outputs up the reduction tree.

    sum: all data one after the other over one rate, and each round computes on as much as the first did: the
    specification's. per-path: the groups of a round at the same time, over their own paths, and each round computes on
    the outputs in its fullest group.
    """

    SUM = "sum"
    PER_PATH = "per-path"


@dataclass(frozen=True, slots=True)
class Work:
    """One operator of a distributed job, as each machine does its part of it.

    `cpu_s_per_100mb` is t, on the CPU of one machine; `input_gb` is d, the mean over machines. `output_gb` None is a
    tenth of the input, or the groups of `grouped`. `other_gb` is the build side of a hash join, `other_s_per_100mb` its
    t (None: the same). `merge_s_per_100mb` is t of merging outputs (None: the same), which only the per-path model
    counts, like `grows`: merged outputs have as many rows as the outputs together (of a filter, a join), else as one of
    them. `skew` is the fullest machine's data over the mean. `groups` of `group_bytes` bytes each are the output of
    `grouped`, at most one per row of `row_bytes` bytes. `kind` is one of `controller.cluster.operators`, '' for any.
    `stays` means that its output is read on its own machine, so that no round of the tree combines outputs. `basis` is
    the basis of t; if it is none, the CPU is chosen, and `unknown` says why.
    """

    name: str
    growth: Growth
    cpu_s_per_100mb: float
    input_gb: float
    output_gb: float | None = None
    other_gb: float = 0.0
    other_s_per_100mb: float | None = None
    merge_s_per_100mb: float | None = None
    grows: bool = False
    skew: float = 1.0
    groups: float | None = None
    group_bytes: float = 16.0
    row_bytes: float = 100.0
    kind: str = ""
    basis: Basis = Basis.MODELLED
    unknown: str = ""
    stays: bool = False

    def __post_init__(self) -> None:
        for name in ("cpu_s_per_100mb", "input_gb", "other_gb"):
            _amount(self.name, name, getattr(self, name))
        for name in ("output_gb", "other_s_per_100mb", "merge_s_per_100mb", "groups"):
            if (value := getattr(self, name)) is not None:
                _amount(self.name, name, value)
        for name in ("group_bytes", "row_bytes"):
            _amount(self.name, name, getattr(self, name))
            if not getattr(self, name):
                raise AccelerationError(f"{self.name}: {name}: a row of 0 bytes", at=name)
        if not 1 <= self.skew < math.inf:
            raise AccelerationError(f"{self.name}: a skew of {self.skew} is not at least 1", at="skew")
        if self.basis is Basis.NONE and not self.unknown:
            raise AccelerationError(f"{self.name}: no reason given for its unknown time", at="unknown")


@dataclass(frozen=True, slots=True)
class Round:
    """A round of the reduction tree over real paths: `s_per_gb * output_gb + delay_s` seconds, contention included.

    `grown_s_per_gb` replaces `s_per_gb` if outputs grow on their way: seconds per GB of each machine's own; None: as if
    all senders had as many machines' outputs as the fullest.
    """

    s_per_gb: float
    delay_s: float = 0.0
    grown_s_per_gb: float | None = None

    def __post_init__(self) -> None:
        if self.grown_s_per_gb is not None:
            _amount("a round", "grown_s_per_gb", self.grown_s_per_gb)
        _amount("a round", "s_per_gb", self.s_per_gb)
        _amount("a round", "delay_s", self.delay_s)


@dataclass(frozen=True, slots=True)
class Network:
    """Network between machines: B, the rate from node to node in Gbit/s, and rounds by real paths if known."""

    rate_gbit_per_s: float
    rounds: tuple[Round, ...] | None = None

    def __post_init__(self) -> None:
        _rate("network", "rate_gbit_per_s", self.rate_gbit_per_s)


@dataclass(frozen=True, slots=True)
class Machines:
    """`count` machines (n) that reduce over a tree of fan-in `fan_in` (k, capped at n).

    `has_finite_sum` uses the sum over the actual rounds instead of the limit of the series (sum model only).
    """

    network: Network
    count: int
    fan_in: int = 10
    transfer: TransferModel = TransferModel.SUM
    has_finite_sum: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_MACHINES:
            raise AccelerationError(f"{self.count} machines, not 1 to {MOST_MACHINES}", at="count")
        if self.fan_in < 2:
            raise AccelerationError(f"a fan-in of {self.fan_in} is below 2", at="fan_in")
        rounds = self.network.rounds
        if rounds is not None and self.transfer is TransferModel.PER_PATH and len(rounds) != len(self.groups):
            raise AccelerationError(
                f"{len(rounds)} rounds by paths, but {self.count} machines with a fan-in of {self.fan_in} have"
                f" {len(self.groups)}",
                at="network.rounds",
            )

    @property
    def effective_fan_in(self) -> int:
        """At most the number of machines, and at least 2: one machine has no rounds at all."""
        return max(2, min(self.fan_in, self.count))

    @property
    def groups(self) -> tuple[int, ...]:
        """The fullest group of each round, in whole machines: as many as the fan-in, or all that still send."""
        fullest, senders = [], self.count
        while senders > 1:
            fullest.append(min(self.fan_in, senders))
            senders = -(-senders // self.fan_in)
        return tuple(fullest)

    @property
    def shares(self) -> tuple[int, ...]:
        """Number of machines whose outputs the fullest group of each round has."""
        return tuple(min(self.fan_in**number, self.count) for number in range(1, len(self.groups) + 1))

    def s_per_gb(self, at: int, *, grows: bool) -> float:
        """Return the seconds of round `at` over its paths per GB of each machine's output; needs rounds by paths."""
        assert self.network.rounds is not None
        way = self.network.rounds[at]
        if not grows or at == 0:
            return way.s_per_gb
        return way.s_per_gb * self.shares[at - 1] if way.grown_s_per_gb is None else way.grown_s_per_gb


@dataclass(frozen=True, slots=True)
class Compression:
    """`ratio` (c) is compressed over plain size, `gb_per_s` (v) the accelerator's (de)compression rate."""

    ratio: float
    gb_per_s: float

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise AccelerationError(f"a compression ratio of {self.ratio} is not above 0 and at most 1", at="ratio")
        _rate("compression", "gb_per_s", self.gb_per_s)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device other than the CPU that can run operators on each machine.

    `parallelism` is M; `relative_speed` is r, the speed of one core of the CPU over one of its own; `bus_gb_per_s`
    between its memory and the machine's (infinite if they are one). `memory_gb` is its capacity: a larger sort or join
    does not run there, streaming operators do. `runs` are the kinds of operators that it can run, None for all.
    `is_on_the_way` means that data from the network passes through it, so that outputs of others cross no bus (a DPU).
    `speed_up` overrides M / r for kinds of operators measured on it. `name` distinguishes it from others of its kind.
    """

    kind: DeviceKind
    parallelism: float
    relative_speed: float = 1.0
    bus_gb_per_s: float = 12.8
    compression: Compression | None = None
    memory_gb: float = math.inf
    runs: frozenset[str] | None = None
    is_on_the_way: bool = False
    speed_up: tuple[tuple[str, float], ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if self.kind is DeviceKind.CPU:
            raise AccelerationError("a CPU is not an accelerator", at="kind")
        for name in ("parallelism", "bus_gb_per_s", "memory_gb"):
            _rate(self.kind, name, getattr(self, name))
        _rate(self.kind, "relative_speed", self.relative_speed)
        if math.isinf(self.relative_speed):
            raise AccelerationError(f"{self.kind}: relative_speed: must be finite", at="relative_speed")
        if self.label in {CPU, SWITCH}:
            raise AccelerationError(f"{self.kind}: an accelerator cannot have the name {self.name}", at="name")
        for kind, factor in self.speed_up:
            _rate(self.kind, f"speed_up.{kind}", factor)

    @property
    def label(self) -> str:
        """Label in decisions: its name, else its kind."""
        return self.name or self.kind.value

    def faster_by(self, kind: str) -> float:
        """Return its speed-up over one core of the CPU for a kind of operator: M / r, or measured."""
        return dict(self.speed_up).get(kind, self.parallelism / self.relative_speed)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of an operator on a device, in parts."""

    compute_s: float
    aggregation_s: float
    transfer_s: float
    bus_s: float = 0.0
    compression_s: float = 0.0

    @property
    def total_s(self) -> float:
        """All parts, one after the other."""
        return self.compute_s + self.aggregation_s + self.transfer_s + self.bus_s + self.compression_s


@dataclass(frozen=True, slots=True)
class Decision:
    """The device chosen for an operator: "cpu", an accelerator's label or "switch", with the times of each choice.

    `ratio` is the CPU's time over that of the best other choice, None without another, or if neither takes time. `tied`
    is the choice that would have been made without a tie band, '' if it changed nothing.
    """

    work: Work
    device: str
    times: Mapping[str, Times]
    ratio: float | None
    reasons: tuple[str, ...]
    basis: Basis
    tied: str = ""


def _amount(owner: str, name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise AccelerationError(f"{owner}: {name}: {value} is not finite and >= 0", at=name)


def _rate(owner: str, name: str, value: float) -> None:
    if not value > 0:
        raise AccelerationError(f"{owner}: {name}: {value} is not above 0", at=name)
