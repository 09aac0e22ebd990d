"""Disks as memory media: their own counters, and how busy they were between two readings.

Source: Documentation/block/stat.rst of Linux; sectors are 512 bytes there, whatever the disk's are.
"""

from __future__ import annotations

import re
from typing import Final

from collectors.devices.root import Root, integer_of
from collectors.devices.values import DiskRates, DiskSample
from dataplane.clock import NS_PER_MS, NS_PER_S

_SECTOR_BYTES: Final = 512
_FIELDS: Final = 10
_NO_DISK: Final = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+")
"""Devices that are backed by other disks or memory, or are no disks: they would be counted twice."""


def read_disks(root: Root, time_ns: int) -> tuple[DiskSample, ...]:
    """Return the counters of all disks."""
    samples = []
    for name in root.names("sys", "block"):
        figures = [integer_of(word) for word in (root.text("sys", "block", name, "stat") or "").split()]
        complete = [figure for figure in figures[:_FIELDS] if figure is not None]
        if _NO_DISK.fullmatch(name) or len(complete) < _FIELDS:
            continue
        read, written, busy_ms = complete[2], complete[6], complete[9]
        samples.append(DiskSample(name, time_ns, read * _SECTOR_BYTES, written * _SECTOR_BYTES, busy_ms * NS_PER_MS))
    return tuple(samples)


def disk_rates(before: DiskSample, after: DiskSample) -> DiskRates | None:
    """Return a disk's reads and writes per second between two samples.

    None where no time has passed, or a counter went back, as when the disk was taken out and put back.
    """
    interval_ns = after.time_ns - before.time_ns
    read, written = after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes
    busy_ns = after.busy_ns - before.busy_ns
    if interval_ns <= 0 or min(read, written, busy_ns) < 0:
        return None
    return DiskRates(
        after.name,
        after.time_ns,
        interval_ns,
        read * NS_PER_S // interval_ns,
        written * NS_PER_S // interval_ns,
        min(busy_ns / interval_ns, 1.0),
    )
