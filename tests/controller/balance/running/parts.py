"""Parts of loops for tests: scripted samples, and quotas on a tree of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collectors.devices.root import Root
from controller.balance.errors import SampleError
from controller.balance.levers.quota import CpuQuota
from controller.balance.values import LeverKind, Sample
from dataplane.clock import VirtualClock
from tests.recorded import write_tree

SECOND = 1_000_000_000
GROUPS = "sys/fs/cgroup"
MACHINE = {
    "sys/devices/system/cpu/online": "0-3\n",
    "proc/self/mountinfo": f"30 23 0:26 / /{GROUPS} rw - cgroup2 cgroup2 rw\n",
    f"{GROUPS}/cgroup.subtree_control": "",
    f"{GROUPS}/unit/cpu.max": "50000 100000\n",
    f"{GROUPS}/other/cpu.max": "100000 100000\n",
}


class Written:
    """A scripted source: pairs of bus and load, whole samples, or None for no sample."""

    def __init__(self, samples: Sequence[tuple[float, float] | Sample | None]) -> None:
        self._samples = iter(samples)

    def begin(self, now_ns: int) -> None:
        """Do nothing: samples are scripted."""

    def sample(self, now_ns: int) -> Sample:
        """Return the next sample."""
        reading = next(self._samples)
        if reading is None:
            raise SampleError("u", "it says nothing")
        return reading if isinstance(reading, Sample) else Sample(now_ns / SECOND, *reading, "u")


class Machine:
    """A machine of files with two control groups, and a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, VirtualClock(100 * SECOND)
        self.root = Root(write_tree(folder, MACHINE))

    def units(self, *, low: int = 10, may_set: bool = True) -> CpuQuota:
        """Return /unit's quota as 50 sub-units of 10 thousandths."""
        return CpuQuota("/unit", 10, low=low, high=100, may_set=may_set, root=self.root)

    def clocks(self) -> CpuQuota:
        """Return /other's quota as a clock of 1000 MHz between 500 and 2000."""
        kind = LeverKind.FREQUENCY
        return CpuQuota("/other", 1, kind=kind, low=500, high=2000, may_set=True, root=self.root)

    def quota(self, group: str = "unit") -> str:
        """Return the content of a group's file, '' while it is being written."""
        return next(iter((self.folder / GROUPS / group / "cpu.max").read_text().split()), "")

    def break_group(self, group: str) -> None:
        """Make a group's quota unreadable."""
        file = self.folder / GROUPS / group / "cpu.max"
        file.unlink()
        file.parent.rmdir()

    def mend_group(self, group: str, quota_us: int) -> None:
        """Restore the group."""
        write_tree(self.folder, {f"{GROUPS}/{group}/cpu.max": f"{quota_us} 100000\n"})

    def pass_s(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance_to(self.clock.now_ns() + round(seconds * SECOND))
