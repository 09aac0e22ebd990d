"""Clock caps of AMD's and Intel's devices as levers, by their drivers' files in /sys; those of NVIDIA's are NVML's.

Sources: Documentation/gpu/amdgpu/thermal.rst (pp_dpm_sclk), Documentation/gpu/i915.rst (gt_max_freq_mhz) and
Documentation/ABI/testing/sysfs-driver-intel-xe (freq0) of Linux. The voltage follows the clock in hardware.
"""

from __future__ import annotations

import errno
import os
import re
from typing import Final

from collectors.devices.pci import PCI
from collectors.devices.root import Root
from controller.balance.errors import LeverError
from controller.balance.levers.files import READ_ONLY, CapFile, FileCaps
from controller.balance.levers.values import Moved, Standing, moved, refused
from controller.balance.values import LeverKind

_LEVELS: Final = "pp_dpm_sclk"
_MODE: Final = "power_dpm_force_performance_level"
_MANUAL: Final = "manual"
_LEVEL: Final = re.compile(r"(\d+): (\d+)mhz\b.*", re.IGNORECASE)
"""A level of amdgpu, such as `1: 1500Mhz *`; S is deep sleep."""
_REFUSALS: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def driver_of(root: Root, address: str) -> str:
    """Return the name of a device's driver, '' without one."""
    return (root.link(*PCI, address, "driver") or "").rpartition("/")[2]


class AmdClocks:
    """The clock cap of an AMD device's cores: which of the driver's levels it may use.

    The driver tells the current level but not the allowed ones: until moved, all of them count as allowed.
    """

    def __init__(self, address: str, root: Root, *, may_set: bool = False) -> None:
        self.kind, self.name = LeverKind.FREQUENCY, f"clock of {address}"
        self._root, self._may_set, self._folder = root, may_set, (*PCI, address)
        self._levels = self._listed()
        self._found_mode = (root.text(*self._folder, _MODE) or "").strip()
        if not self._levels or not self._found_mode:
            raise LeverError(self.name, f"its driver shows no levels in {_LEVELS}, or no {_MODE}")
        self._points = tuple(sorted(set(self._levels.values())))
        self._cap_mhz, self._refusal = self._points[-1], ""
        self._has_moved = False

    def read(self) -> Standing:
        """Return the cap, and the driver's levels; raise LeverError if the device is gone."""
        if not self._listed():
            raise LeverError(self.name, f"/{'/'.join((*self._folder, _LEVELS))} is gone")
        low, high = self._points[0], self._points[-1]
        why_not = self._why_not()
        return Standing(self._cap_mhz, low, high, 1.0, not why_not, why_not, self._points)

    def move(self, by: float) -> Moved:
        """Raise (lower) the cap by this many MHz, to one of the levels."""
        standing = self.read()
        if (nothing := refused(standing, by)) is not None:
            return nothing
        target = standing.place(standing.value + by)
        if target != standing.value:
            allowed = " ".join(str(number) for number, mhz in sorted(self._levels.items()) if mhz <= target)
            for name, text in ((_MODE, _MANUAL), (_LEVELS, allowed)):
                if (refusal := self._refused_write(name, text)) is not None:
                    self._refusal = refusal
                    return Moved(0.0, by, refusal)
                self._has_moved = True
            self._cap_mhz = target
        return moved(standing, by, target)

    def release(self, *, always: bool = False) -> None:
        """Restore the driver's own mode, if this lever ever changed it."""
        if self._has_moved or (always and self._may_set and not self._refusal):
            if (refusal := self._refused_write(_MODE, self._found_mode)) is not None:
                raise LeverError(self.name, refusal)
            self._cap_mhz, self._has_moved = self._points[-1], False

    def _refused_write(self, name: str, text: str) -> str | None:
        """Write a file; return why the kernel refuses that for good, raise LeverError for other failures."""
        file = self._root.path.joinpath(*self._folder, name)
        try:
            file.write_text(f"{text}\n")
        except OSError as error:
            problem = f"{file} cannot be written: {error.strerror}"
            if error.errno in _REFUSALS:
                return f"the kernel refuses: {problem}"
            raise LeverError(self.name, problem) from error
        return None

    def _listed(self) -> dict[int, float]:
        lines = (self._root.text(*self._folder, _LEVELS) or "").splitlines()
        matches = (_LEVEL.fullmatch(line.strip()) for line in lines)
        return {int(match[1]): float(match[2]) for match in matches if match is not None}

    def _why_not(self) -> str:
        if not self._may_set:
            return READ_ONLY
        if self._refusal:
            return self._refusal
        paths = [self._root.path.joinpath(*self._folder, name) for name in (_MODE, _LEVELS)]
        refused_at = next((path for path in paths if not os.access(path, os.W_OK)), None)
        return "" if refused_at is None else f"no permission to write {refused_at}"


def intel_clocks(address: str, root: Root, *, may_set: bool = False) -> FileCaps:
    """Return the clock cap of an Intel device, all its tiles and engines together; raise LeverError without one."""
    name, folder = f"clock of {address}", (*PCI, address)
    files = [*_of_xe(root, folder), *_of_i915(root, folder)]
    if not files:
        raise LeverError(name, f"its driver ({driver_of(root, address) or 'none'}) shows no range of clocks in /sys")
    return FileCaps(LeverKind.FREQUENCY, name, files, root, may_set=may_set)


def _of_xe(root: Root, folder: tuple[str, ...]) -> list[CapFile]:
    tiles = [name for name in root.names(*folder) if re.fullmatch(r"tile\d+", name)]
    engines = [
        (*folder, tile, gt, "freq0") for tile in tiles for gt in root.names(*folder, tile) if gt.startswith("gt")
    ]
    return [file for engine in engines if (file := _cap(root, engine, "max_freq", "rpn_freq", "rp0_freq")) is not None]


def _of_i915(root: Root, folder: tuple[str, ...]) -> list[CapFile]:
    cards = [(*folder, "drm", name) for name in root.names(*folder, "drm") if re.fullmatch(r"card\d+", name)]
    names = ("gt_max_freq_mhz", "gt_RPn_freq_mhz", "gt_RP0_freq_mhz")
    return [file for card in cards if (file := _cap(root, card, *names)) is not None]


def _cap(root: Root, folder: tuple[str, ...], cap: str, low: str, high: str) -> CapFile | None:
    low_mhz, high_mhz = root.integer(*folder, low), root.integer(*folder, high)
    if root.integer(*folder, cap) is None or low_mhz is None or high_mhz is None or not 0 < low_mhz <= high_mhz:
        return None
    return CapFile((*folder, cap), low_mhz, high_mhz)
