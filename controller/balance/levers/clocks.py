"""The clock of CPUs as a lever: the maximum that cpufreq allows. Their voltage follows it in hardware.

Source: Documentation/admin-guide/pm/cpufreq.rst of Linux. A cap works with every governor; if the processor's firmware
alone sets the clock, as in most virtual machines, there is no cpufreq and no such lever.
"""

from __future__ import annotations

import os
from typing import Final

from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.values import LeverKind

_CPUFREQ: Final = ("sys", "devices", "system", "cpu", "cpufreq")
_KHZ_PER_MHZ: Final = 1000
_CAP: Final = "scaling_max_freq"
_STEP_MHZ: Final = 1.0
"""Step for drivers without a list of clocks, which round by themselves."""


class CpuClocks:
    """The clock cap of some CPUs, by their policies (policy0, ...), or of all; raises LeverError without any."""

    def __init__(self, policies: tuple[str, ...] = (), *, may_set: bool = False, root: Root | None = None) -> None:
        self.kind, self._may_set, self._root = LeverKind.FREQUENCY, may_set, Root() if root is None else root
        there = [name for name in self._root.names(*_CPUFREQ) if name.startswith("policy")]
        self._policies = policies or tuple(there)
        self.name = f"cpu clock of {', '.join(policies) if policies else 'all CPUs'}"
        absent = next((name for name in policies if name not in there), None)
        if absent is not None or not there:
            what = "no cpufreq on this machine, as on most virtual ones" if absent is None else f"no {absent}"
            raise LeverError(self.name, what)
        self._has_moved = False
        self._found_khz = {name: self._khz(name, _CAP) for name in self._policies}

    def read(self) -> Standing:
        """Return the highest clock allowed for any of the CPUs, and the range of settings."""
        caps = [self._khz(name, _CAP) for name in self._policies]
        lows = [self._khz(name, "cpuinfo_min_freq") for name in self._policies]
        highs = [self._khz(name, "cpuinfo_max_freq") for name in self._policies]
        why_not = self._why_not()
        low, high = min(lows) / _KHZ_PER_MHZ, max(highs) / _KHZ_PER_MHZ
        return Standing(max(caps) / _KHZ_PER_MHZ, low, high, _STEP_MHZ, not why_not, why_not, self._points())

    def move(self, by: float) -> Moved:
        """Raise (lower) the cap by this many MHz; the kernel reports the resulting clock."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = standing.place(standing.value + by)
        if target != standing.value:
            self._has_moved = True
            self._write({name: round(target * _KHZ_PER_MHZ) for name in self._policies})
        return moved(standing, by, self.read().value)

    def release(self, *, always: bool = False) -> None:
        """Restore the original caps, if this lever ever moved them."""
        if self._has_moved or (always and self._may_set):
            self._write(self._found_khz)
            self._has_moved = False

    def _write(self, caps_khz: dict[str, int]) -> None:
        for name, cap_khz in caps_khz.items():
            low, high = self._khz(name, "cpuinfo_min_freq"), self._khz(name, "cpuinfo_max_freq")
            path = self._root.path.joinpath(*_CPUFREQ, name, _CAP)
            try:
                path.write_text(f"{min(max(cap_khz, low), high)}\n")
            except OSError as error:
                raise LeverError(self.name, f"{path} cannot be written: {error.strerror}") from error

    def _points(self) -> tuple[float, ...]:
        points = {
            int(word) / _KHZ_PER_MHZ
            for name in self._policies
            for word in (self._root.text(*_CPUFREQ, name, "scaling_available_frequencies") or "").split()
            if word.isdecimal()
        }
        return tuple(sorted(points))

    def _khz(self, policy: str, file: str) -> int:
        khz = self._root.integer(*_CPUFREQ, policy, file)
        if khz is None or khz <= 0:
            raise LeverError(self.name, f"/{'/'.join((*_CPUFREQ, policy, file))} holds no clock")
        return khz

    def _why_not(self) -> str:
        if not self._may_set:
            return "its settings lack set: true"
        paths = [self._root.path.joinpath(*_CPUFREQ, name, _CAP) for name in self._policies]
        refused_at = next((path for path in paths if not os.access(path, os.W_OK)), None)
        return "" if refused_at is None else f"no permission to write {refused_at}"
