"""Times of operators on the machines' CPUs and accelerators: the model, for all operators at once.

The formulas are those of the acceleration-ratio model, in its symbols. With T the time of one machine and L the rounds
of the reduction tree, CPU: T (1 + L) + X; accelerator: (1.1 d / bus + T r / M) (1 + L) + X, with compression 1.1 d / v
+ ... + c X, where X is the transfer time. `exact` is the readable twin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model.columns import Floats, TimeColumns, Works
from controller.acceleration.values import Accelerator, Machines, TransferModel

_BITS_PER_BYTE: Final = 8
_HUNDREDS_MB: Final = 10
"""100 MB in a GB."""


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Costs of the tree's rounds: computing, transfer, and the GB that cross an accelerator's bus."""

    cpu_s: Floats
    transfer_s: Floats
    bus_gb: Floats


def times(works: Works, machines: Machines, accelerator: Accelerator | None = None) -> TimeColumns:
    """Return the seconds of operators on the CPUs of all machines (None), or on an accelerator of each.

    Raise AccelerationError, naming the operator, if a time overflows.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rounds = _summed(works, machines) if machines.transfer is TransferModel.SUM else _by_paths(works, machines)
        if works.stays.any():
            rounds = _Rounds(*(part * ~works.stays for part in (rounds.cpu_s, rounds.transfer_s, rounds.bus_gb)))
        alone_s = _grown(works, works.t, works.d * works.skew, works.other_d * works.skew)
        columns = _on_cpu(alone_s, rounds) if accelerator is None else _on(accelerator, works, alone_s, rounds)
        total_s = columns.total_s
    if not np.isfinite(total_s).all():
        worst = works.items[int(np.argmin(np.isfinite(total_s)))]
        raise AccelerationError(f"{worst.name}: t = {worst.cpu_s_per_100mb} s over {worst.input_gb} GB is out of range")
    return columns


def rounds_of(machines: Machines) -> float:
    """Return log_k n, the sum model's rounds: real, as in the formula; 0 for one machine, 1 for k of n or more."""
    if machines.count == 1:
        return 0.0
    rounds = math.log(machines.count) / math.log(machines.effective_fan_in)
    whole = round(rounds)
    return float(whole) if machines.effective_fan_in**whole == machines.count else rounds


def senders_of(machines: Machines) -> float:
    """Return the number of single-machine outputs sent: n k / (k - 1), or (n - 1) k / (k - 1) of the finite sum."""
    if machines.count == 1:
        return 0.0
    fan_in = machines.effective_fan_in
    return (machines.count - machines.has_finite_sum) * fan_in / (fan_in - 1)


def _on_cpu(alone_s: Floats, rounds: _Rounds) -> TimeColumns:
    nothing = np.zeros_like(alone_s)
    return TimeColumns(alone_s, rounds.cpu_s, rounds.transfer_s, nothing, nothing)


def _on(device: Accelerator, works: Works, alone_s: Floats, rounds: _Rounds) -> TimeColumns:
    faster: float | Floats = device.parallelism / device.relative_speed
    if device.speed_up:
        factors = {kind: device.faster_by(kind) for kind in {work.kind for work in works.items}}
        faster = np.array([factors[work.kind] for work in works.items], np.float64)
    local_gb = works.goes_in * works.skew + works.output * np.where(works.is_grouped, 1.0, works.skew)
    bus_gb = local_gb if device.is_on_the_way else local_gb + rounds.bus_gb
    packed, ratio = np.zeros_like(alone_s), 1.0
    if device.compression is not None:
        packed, ratio = local_gb / device.compression.gb_per_s, device.compression.ratio
    return TimeColumns(
        alone_s / faster, rounds.cpu_s / faster, rounds.transfer_s * ratio, bus_gb / device.bus_gb_per_s, packed
    )


def _summed(works: Works, machines: Machines) -> _Rounds:
    """Count as in the specification: each round computes as the first did, and all data goes over one rate."""
    count = rounds_of(machines)
    moved_gb = works.output * senders_of(machines)
    return _Rounds(
        _grown(works, works.t, works.d, works.other_d) * count,
        moved_gb * _BITS_PER_BYTE / machines.network.rate_gbit_per_s,
        (works.goes_in + works.output) * count,
    )


def _by_paths(works: Works, machines: Machines) -> _Rounds:
    """Count groups of a round at the same time; the fullest machine's output delays the rounds that it is in."""
    cpu_s, transfer_s, bus_gb = (np.zeros(len(works)) for _ in range(3))
    for at, members in enumerate(machines.groups):
        parts = np.where(works.grows, machines.shares[at], members)
        # After the first round a group's output is one part of many, except for rows that are only concatenated.
        is_even = works.is_grouped | (~works.grows if at else False)
        held_gb = works.output * np.where(is_even, parts, parts - 1 + works.skew)
        cpu_s += _grown(works, works.merge_t, held_gb, np.zeros_like(held_gb))
        bus_gb += held_gb + np.where(works.grows, held_gb, works.output)
        if machines.network.rounds is None:
            transfer_s += held_gb * _BITS_PER_BYTE / machines.network.rate_gbit_per_s
        else:
            plain, grown = (machines.s_per_gb(at, grows=grows) for grows in (False, True))
            transfer_s += held_gb / parts * np.where(works.grows, grown, plain) + machines.network.rounds[at].delay_s
    return _Rounds(cpu_s, transfer_s, bus_gb)


def _grown(works: Works, t: Floats, d: Floats, other_d: Floats) -> Floats:
    """Return the CPU's seconds on one machine, each operator by its class."""
    compute_s = linear = _HUNDREDS_MB * t * d
    if works.has_sorts:
        deeper = np.log1p(d * works.rows_per_gb) / np.log1p(works.rows_per_gb / _HUNDREDS_MB)
        compute_s = np.where(works.is_sort, linear * deeper, linear)
    if works.has_squares:
        compute_s = np.where(works.is_square, _HUNDREDS_MB**2 * t**2 * d, compute_s)
    joined: Floats = compute_s + _HUNDREDS_MB * works.other_t * other_d
    return joined
