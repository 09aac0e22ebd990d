"""A fixed share of a core for each local worker, small enough that all fit: none waits for another one's processor."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from controller.acceleration.running.errors import RunError
from dataplane.cgroup_limits import limit, remove_empty
from dataplane.cgroups import group_at

_PERIOD_US: Final = 10_000
"""Period of quotas: short, so that work of some tens of milliseconds takes as long as its share implies."""


class Shares:
    """A control group for each process while the `with` block lasts (root); limited to `cpu_milli` while `limited`."""

    def __init__(self, processes: Sequence[int], cpu_milli: int) -> None:
        self._groups = {process: f"/millrace-accel-{secrets.token_hex(3)}-{process}" for process in processes}
        self._cpu_milli = cpu_milli

    def __enter__(self) -> Self:
        try:
            for process, group in self._groups.items():
                limit(group, self._cpu_milli, None)
                (self._folder(group) / "cgroup.procs").write_text(str(process))
        except OSError as error:
            self._remove()
            raise RunError(f"shares of a core: control groups: {error.strerror or error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def limited(self, *, is_limited: bool) -> None:
        """Limit processes to their share, or lift the limit, as while data is loaded."""
        quota_us = self._cpu_milli * _PERIOD_US // 1000
        for group in self._groups.values():
            folder = self._folder(group)
            if (folder / "cpu.max").exists():
                (folder / "cpu.max").write_text(f"{quota_us if is_limited else 'max'} {_PERIOD_US}")
            else:
                (folder / "cpu.cfs_quota_us").write_text("-1")
                (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
                (folder / "cpu.cfs_quota_us").write_text(str(quota_us if is_limited else -1))

    def _remove(self) -> None:
        for process, group in self._groups.items():
            folder = group_at(group).folders.get("cpu")
            if folder is not None and Path(f"/proc/{process}").exists():
                (folder.parent / "cgroup.procs").write_text(str(process))
            remove_empty(group)

    def _folder(self, group: str) -> Path:
        folder = group_at(group).folders.get("cpu")
        if folder is None:
            raise RunError("shares of a core: no control group for CPU time")
        return folder
