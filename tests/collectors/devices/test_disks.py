"""Counters of disks, and how busy disks were."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collectors.devices.disks import disk_rates, read_disks
from collectors.devices.root import Root
from collectors.devices.values import DiskSample
from tests.recorded import write_tree

STAT = "   18394     4711   100  21563    75130   102923  200   93841        0    1500   115404        0\n"


def test_counters_of_disks_but_not_of_what_lies_on_them(tmp_path: Path) -> None:
    tree = {f"sys/block/{name}/stat": STAT for name in ("nvme0n1", "vda", "loop0", "dm-0", "zram0")}
    disks = read_disks(Root(write_tree(tmp_path, tree | {"sys/block/vdb/stat": "1 2 x\n"})), 3)
    assert [sample.name for sample in disks] == ["nvme0n1", "vda"]
    assert disks[0] == DiskSample("nvme0n1", 3, 100 * 512, 200 * 512, 1_500_000_000)


def test_rates_and_busy_time() -> None:
    before = DiskSample("vda", 0, 1000, 500, 0)
    after = DiskSample("vda", 2_000_000_000, 5000, 500, 500_000_000)
    rates = disk_rates(before, after)
    assert rates is not None
    assert (rates.read_bytes_per_s, rates.written_bytes_per_s, rates.busy) == (2000, 0, 0.25)
    assert disk_rates(after, before) is None
    assert disk_rates(after, dataclasses.replace(before, time_ns=9_000_000_000)) is None


def test_this_machine() -> None:
    assert all(sample.read_bytes >= 0 and sample.time_ns == 1 for sample in read_disks(Root(), 1))
