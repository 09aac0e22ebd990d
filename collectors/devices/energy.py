"""Power drawn by processors: energy counters of their packages, from Linux's powercap (RAPL).

Source: Documentation/power/powercap/powercap.rst and Documentation/ABI/testing/sysfs-class-powercap of Linux. Only
root can read the counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from collectors.devices.root import Root
from collectors.devices.values import EnergySample

_POWERCAP: Final = ("sys", "class", "powercap")
_PACKAGE: Final = re.compile(r"intel-rapl:\d+")
"""Zones with more numbers are parts of these; AMD's processors have the same names."""
_MICROJOULES_PER_NS: Final = 1000
"""In watts."""


def read_energy(root: Root, time_ns: int) -> tuple[EnergySample, ...]:
    """Return the counters of the processors' packages; none where there are none, or this user may not read them."""
    found = []
    for name in root.names(*_POWERCAP):
        energy_uj = root.integer(*_POWERCAP, name, "energy_uj")
        range_uj = root.integer(*_POWERCAP, name, "max_energy_range_uj")
        if _PACKAGE.fullmatch(name) and energy_uj is not None and range_uj is not None and 0 <= energy_uj <= range_uj:
            found.append(EnergySample(name, time_ns, energy_uj, range_uj))
    return tuple(found)


def power_w(before: Iterable[EnergySample], after: Iterable[EnergySample]) -> float | None:
    """Return what all packages took between two readings; None where not each was read twice, or no time has passed.

    A counter that is lower than before has started again, once: readings lie less than its range apart.
    """
    first, last = ({sample.name: sample for sample in samples} for samples in (before, after))
    if not first or first.keys() != last.keys():
        return None
    total_w = 0.0
    for name, sample in last.items():
        since = first[name]
        interval_ns = sample.time_ns - since.time_ns
        if interval_ns <= 0:
            return None
        used_uj = (sample.energy_uj - since.energy_uj) % (sample.range_uj + 1)
        total_w += used_uj * _MICROJOULES_PER_NS / interval_ns
    return total_w
