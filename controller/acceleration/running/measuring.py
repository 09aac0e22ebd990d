"""Runs on workers compared with the model: trials first, then one worker with all the data, then all workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Final

import pyarrow as pa

from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.comparing import (
    Comparison,
    Processing,
    predicted,
    processed,
    processing_of,
)
from controller.acceleration.running.values import MOST_COPIES, Plan, Sample, Trial
from controller.acceleration.values import Machines

PARTS: Final = (1, 4)
"""Fractions for trials: one shard, and a quarter of one."""
SAMPLES_BYTES: Final = (1 << 10, 4 << 20)
_SAMPLES: Final = 3
Making = Callable[[int], Cluster]
"""Opens a session with this many first workers."""


def trials_of(making: Making, plan: Plan, tables: Mapping[str, pa.Table], machines: Machines) -> list[Trial]:
    """Return trials of parts of a shard on the first worker alone."""
    sharded, trials = plan.split.sharded, []
    for part in PARTS:
        rows = max(tables[sharded].num_rows // machines.count // part, 1)
        with making(1) as cluster:
            cluster.load({**tables, sharded: tables[sharded].slice(0, rows)})
            trials.append(cluster.trial(min(machines.effective_fan_in, MOST_COPIES)))
    return trials


def processing(making: Making, trials: Sequence[Trial]) -> Processing:
    """Return the processor cost of networking, from tables that the first worker sends to the second one.

    A worker has the share of its processor that it had in the largest trial; all of it if that used several threads.
    """
    greatest = max(trials, key=lambda trial: trial.input_bytes)
    slower = max(greatest.compute_s / greatest.cpu_s, 1.0) if greatest.cpu_s > 0 else 1.0
    with making(2) as cluster:
        for nbytes in SAMPLES_BYTES:
            cluster.sample(nbytes)
        small, large = ([cluster.sample(nbytes) for _ in range(_SAMPLES)] for nbytes in SAMPLES_BYTES)
    return processing_of(_middle(small), _middle(large), slower)


def _middle(samples: Sequence[Sample]) -> Sample:
    return Sample(
        samples[0].nbytes,
        median(sample.sent_cpu_s for sample in samples),
        median(sample.received_cpu_s for sample in samples),
    )


def timed(making: Making, tables: Mapping[str, pa.Table], machines: Machines, count: int, times: int) -> float:
    """Return the mean seconds of some runs on the first `count` workers, after a warm-up run."""
    with making(count) as cluster:
        cluster.load(tables)
        return fmean([cluster.run(machines.fan_in).run_time_s for _ in range(times + 1)][1:])


def compared(
    making: Making, plan: Plan, tables: Mapping[str, pa.Table], machines: Machines, times: int = 3
) -> Comparison:
    """Return the predictions for one machine and for all of them, and the measured times."""
    trials = trials_of(making, plan, tables, machines)
    taken = processing(making, trials) if machines.count > 1 else None
    if taken is not None:
        machines = processed(machines, taken)
    input_gb = tables[plan.split.sharded].nbytes / machines.count / 1e9
    single, all_ = predicted(plan, trials, input_gb, machines)
    one_s = timed(making, tables, machines, 1, times)
    return Comparison(single, all_, one_s, timed(making, tables, machines, machines.count, times), taken)
