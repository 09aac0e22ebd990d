"""A quota of CPU time as a lever, on every Linux machine: it speeds up or slows down a control group's processes.

As sub-units it counts parts of a CPU (time slices); as a frequency, the clock equivalent to such a share of a CPU.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Final

from collectors.devices.processors import read_processors
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.values import LeverKind
from dataplane.cgroup_limits import LEAST_QUOTA_US, PERIOD_US, limit, unlimit_cpu
from dataplane.cgroups import Group, group_at, quotas_milli_of

_MILLI: Final = 1000
_GRAIN: Final = 1e-9
_READ_ONLY: Final = "its settings lack set: true"


class CpuQuota:
    """The quota of an existing control group; `milli` thousandths of a CPU are one sub-unit, or one MHz.

    `low` and `high` are in its own unit; at most all CPUs, or the quota of the levels above. CPU time is handed out
    each `period_us`: the shorter, the smoother, but at least a millisecond of it.
    """

    def __init__(
        self,
        group: str,
        milli: float,
        *,
        kind: LeverKind = LeverKind.SUB_UNITS,
        low: float = 1.0,
        high: float | None = None,
        may_set: bool = False,
        period_us: int = PERIOD_US,
        root: Root | None = None,
    ) -> None:
        self.kind, self.name = kind, f"cpu quota of {group}"
        self._group, self._milli, self._may_set, self._period_us = group, milli, may_set, period_us
        self._root = Root() if root is None else root
        self._low, self._high = low, high
        self._found_milli, self._has_moved = self._quotas()[0], False

    def read(self) -> Standing:
        """Return the current quota; without one, the whole CPU time available."""
        own, *above = self._quotas()
        cpus_milli = _MILLI * max(read_processors(self._root).cpus, 1)
        most_milli = min([cpus_milli, *(level for level in above if level is not None)])
        least = LEAST_QUOTA_US * _MILLI / self._period_us / self._milli
        high = most_milli / self._milli
        if self._high is not None:
            high = min(high, self._high)
        value = (most_milli if own is None else min(own, most_milli)) / self._milli
        why_not = self._why_not()
        return Standing(value, math.ceil(max(self._low, least) - _GRAIN), high, 1.0, not why_not, why_not)

    def move(self, by: float) -> Moved:
        """Give the group this much more (less) CPU time."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = standing.place(standing.value + by)
        if target != standing.value:
            self._write(round(target * self._milli))
            self._has_moved = True
        return moved(standing, by, target)

    def release(self, *, always: bool = False) -> None:
        """Restore the original quota, or none, if this lever ever moved it."""
        if self._has_moved or (always and self._may_set):
            self._quotas()  # fails if the group is gone, instead of recreating it
            self._write(self._found_milli)
            self._has_moved = False

    def _write(self, milli: int | None) -> None:
        try:
            if milli is None:
                unlimit_cpu(self._group, self._root.path)
            else:
                limit(self._group, milli, None, self._root.path, period_us=self._period_us)
        except OSError as error:
            raise LeverError(self.name, f"cannot be set: {error.strerror}") from error

    def _quotas(self) -> tuple[int | None, ...]:
        quotas = quotas_milli_of(self._folders())
        if not quotas:
            raise LeverError(self.name, "no such control group with a CPU quota")
        return quotas

    def _folders(self) -> Group:
        return group_at(self._group, self._root.path)

    def _why_not(self) -> str:
        if not self._may_set:
            return _READ_ONLY
        group = self._folders()
        file = "cpu.max" if "cpu" in group.unified else "cpu.cfs_quota_us"
        path = group.folders.get("cpu", Path()) / file
        if not path.is_file():
            return f"no {path}: the root control group has no quota"
        return "" if os.access(path, os.W_OK) else f"no permission to write {path}"
