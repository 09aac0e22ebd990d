"""Checks that a probe task runs within seconds on one unit, from the time of one execution of each kernel; pure.

The times come from a trial run: `trial` is the probe task with each kernel once. The refusal of a probe task that takes
too long names the kernel responsible and the ratio that would do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from controller.probing.building import BuildSettings, repetitions
from controller.probing.errors import ProbeError
from controller.probing.values import MAX_SIZE, KernelUse, ProbeTask


def trial(probe: ProbeTask) -> ProbeTask:
    """Return a probe task that runs each of its kernels once; uses of equal code and sizes share one run."""
    once = {_work_of(use): replace(use, repetitions=1) for use in reversed(probe.uses)}
    return replace(probe, name="trial", uses=tuple(reversed(once.values())), links=())


def tried_s(probe: ProbeTask, found_s: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of one execution for each use of a probe task, from those of its trial's uses."""
    by_work = {_work_of(use): found_s[use.name] for use in trial(probe).uses}
    return {use.name: by_work[_work_of(use)] for use in probe.uses}


def estimated_s(probe: ProbeTask, execution_s: Mapping[str, float]) -> float:
    """Return the seconds that a probe task takes on one unit, without forming the means."""
    return sum(use.repetitions * execution_s[use.name] for use in probe.uses)


def check(probe: ProbeTask, execution_s: Mapping[str, float], settings: BuildSettings) -> float:
    """Return the estimated seconds on one unit; raise ProbeError, with a remedy, if they exceed the limit."""
    total_s = estimated_s(probe, execution_s)
    if total_s <= settings.limit_s:
        return total_s
    worst = max(probe.uses, key=lambda use: use.repetitions * execution_s[use.name])
    spent_s = worst.repetitions * execution_s[worst.name]
    raise ProbeError(
        f"{probe.name}: takes about {total_s:.3g} s on one unit, at most {settings.limit_s:g} s allowed;"
        f" {_named(worst)} x {worst.repetitions} takes {spent_s:.3g} s of it:"
        f" {_what_would_do(probe, execution_s, settings)}"
    )


def least_ratio(probe: ProbeTask, execution_s: Mapping[str, float], settings: BuildSettings) -> int | None:
    """Return the least ratio, of two digits, at which a probe task is short enough; None if there is none."""
    most = max((use.executions for use in probe.uses), default=1)
    low, high = settings.ratio, min(MAX_SIZE, max(settings.ratio, 2 * most))
    if _seconds_at(probe, execution_s, settings, high) > settings.limit_s:
        return None
    while low < high:
        middle = (low + high) // 2
        is_enough = _seconds_at(probe, execution_s, settings, middle) <= settings.limit_s
        low, high = (low, middle) if is_enough else (middle + 1, high)
    digit: int = 10 ** max(0, len(str(low)) - 2)
    return -(-low // digit) * digit


def _what_would_do(probe: ProbeTask, execution_s: Mapping[str, float], settings: BuildSettings) -> str:
    if probe.target:
        if (ratio := least_ratio(probe, execution_s, settings)) is not None:
            return f"use a ratio of {ratio}:1"
        few = structs.replace(settings, small=1)
        if (ratio := least_ratio(probe, execution_s, few)) is not None:
            return f"use a ratio of {ratio}:1 and reduce small counts, too (small: 1)"
    once_s = sum(execution_s.values())
    if once_s <= settings.limit_s:
        return f"divide repetitions by {-(-estimated_s(probe, execution_s) // settings.limit_s):g}"
    heavy = max(probe.uses, key=lambda use: execution_s[use.name])
    part = settings.limit_s / once_s
    return f"once each takes {once_s:.3g} s, most of it {_named(heavy)}: use sizes with {part:.1%} of the work"


def _seconds_at(probe: ProbeTask, execution_s: Mapping[str, float], settings: BuildSettings, ratio: int) -> float:
    wanted = structs.replace(settings, ratio=ratio)
    return sum(repetitions(use.executions, wanted) * execution_s[use.name] for use in probe.uses)


def _named(use: KernelUse) -> str:
    sizes = " ".join(f"{name}={size}" for name, size in use.sizes)
    return f"{use.kernel} at {sizes}" + (f" (of {use.operator})" if use.operator else "")


def _work_of(use: KernelUse) -> tuple[object, ...]:
    return use.kernel, use.version, use.sizes, use.implementation
