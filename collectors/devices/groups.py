"""The load of a control group against its quota of CPU time: how busy a compute unit is that is a part of a CPU.

Sources: Documentation/admin-guide/cgroup-v2.rst and Documentation/scheduler/sched-bwc.rst of Linux.
"""

from __future__ import annotations

from typing import Final

from collectors.devices.processors import read_processors
from collectors.devices.root import Root
from collectors.devices.values import GroupRates, GroupSample
from collectors.errors import CollectorError
from dataplane.cgroups import group_at, quota_milli_of, usage_in

_MILLI: Final = 1000


def read_group(root: Root, group: str, time_ns: int) -> GroupSample:
    """Return the usage of a control group, such as /millrace/unit; raise CollectorError if it is not counted."""
    control_group = group_at(group, root.path)
    usage = usage_in(control_group)
    if usage.cpu_ns is None:
        raise CollectorError(f"control group {group}: it does not exist, or its CPU time is not counted")
    quota_milli = quota_milli_of(control_group)
    cpus_milli = _MILLI * max(read_processors(root).cpus, 1)
    quota_milli = cpus_milli if quota_milli is None else min(quota_milli, cpus_milli)
    return GroupSample(group, time_ns, usage.cpu_ns, max(quota_milli, 1), usage.throttled_ns)


def group_rates(before: GroupSample, after: GroupSample) -> GroupRates | None:
    """Return the usage of a group per second between two samples.

    None if no time has passed, the group was recreated, or its quota changed in between: the share of it that was used
    is then unknown.
    """
    interval_ns, used_ns = after.time_ns - before.time_ns, after.cpu_ns - before.cpu_ns
    if interval_ns <= 0 or used_ns < 0 or before.quota_milli != after.quota_milli:
        return None
    return GroupRates(after.group, after.time_ns, interval_ns, _MILLI * used_ns / interval_ns, after.quota_milli)
