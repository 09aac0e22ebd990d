"""Blocks in tiers of one machine: memory, memory of a NUMA node, files; versions, room, damage, restarts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.memory.errors import DamagedError, FullError, NoBlockError, RefusedError, TierError
from controller.memory.host.settings import TierKind, TierSettings
from controller.memory.host.store import Tier
from tests.controller.memory.machines import BLOCK, content

ROOM = 4


def settings_of(kind: TierKind, folder: Path, **more: object) -> TierSettings:
    """Return settings of a tier with room for four blocks."""
    of_kind = {TierKind.FILE: {"path": str(folder / "blocks")}, TierKind.NUMA: {"numa_node": 0}}
    every: dict[str, object] = {"capacity_bytes": ROOM * BLOCK, **of_kind.get(kind, {}), **more}  # type: ignore[dict-item]
    return TierSettings(name="t", kind=kind, **every)  # type: ignore[arg-type]


def tick() -> Iterator[int]:
    """Yield times, 1,000 ns apart."""
    yield from range(0, 1 << 40, 1000)


def opened(settings: TierSettings) -> Tier:
    """Return a tier whose clock advances 1 us at each look."""
    return Tier(settings, BLOCK, is_home=True, clock_ns=tick().__next__)


def put(tier: Tier, key: int, version: int) -> None:
    """Store a block's content."""
    data = content(key, version)
    tier.put(key, version, data, zlib.crc32(data))


@pytest.fixture(params=[TierKind.DRAM, TierKind.FILE, TierKind.NUMA])
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tier]:
    """Yield an empty tier of each kind."""
    if request.param is TierKind.NUMA and not Path("/sys/devices/system/node/node0").exists():
        pytest.skip("this kernel has no NUMA nodes")
    made = opened(settings_of(request.param, tmp_path))
    yield made
    made.close()


def test_blocks_are_read_as_they_were_written(tier: Tier) -> None:
    put(tier, 7, 1)
    put(tier, 1 << 62, 5)
    read = tier.get(7)
    assert (read.data, read.version, read.checksum) == (content(7, 1), 1, zlib.crc32(content(7, 1)))
    assert tier.get(1 << 62, 5).data == content(1 << 62, 5)
    assert tier.listed(8, 10) == (((1 << 62, 5),), False)
    assert tier.listed(0, 1) == (((7, 1),), True)


def test_newer_version_replaces_and_older_does_not(tier: Tier) -> None:
    put(tier, 7, 2)
    put(tier, 7, 3)
    put(tier, 7, 1)
    assert tier.get(7).data == content(7, 3)
    with pytest.raises(NoBlockError, match=r"block 7 in version 2: it is in version 3"):
        tier.get(7, 2)


def test_full_tier_refuses_new_blocks_but_takes_versions(tier: Tier) -> None:
    for key in range(ROOM):
        put(tier, key, 1)
    with pytest.raises(FullError, match="tier t is full: it has room for 4 blocks"):
        put(tier, 9, 1)
    put(tier, 0, 2)
    tier.free(1, 1)
    put(tier, 9, 1)
    assert [key for key, _ in tier.listed(0, 10)[0]] == [0, 2, 3, 9]


def test_free_spares_newer_versions(tier: Tier) -> None:
    put(tier, 3, 4)
    tier.free(3, 3)
    tier.free(5, 9)
    assert tier.get(3).version == 4
    tier.free(3, 4)
    with pytest.raises(NoBlockError, match="block 3: it is not there"):
        tier.get(3)


def test_wrong_sizes_and_changed_blocks_are_refused(tier: Tier) -> None:
    with pytest.raises(RefusedError, match="a block of 3 bytes, not 4096"):
        tier.put(1, 1, b"abc", zlib.crc32(b"abc"))
    with pytest.raises(DamagedError, match="block 1 arrived changed"):
        tier.put(1, 1, content(1), zlib.crc32(content(2)))
    assert tier.listed(0, 10) == ((), False)


def test_sensor_measures_at_start_and_in_use(tier: Tier) -> None:
    assert (tier.figures.read_ns, tier.figures.read_bps) == (0, 0)
    tier.measure()
    before = tier.figures
    assert (before.read_ns, before.write_ns, before.samples) == (1000, 1000, 0)
    assert before.read_bps == before.write_bps == 8 * BLOCK * 1_000_000
    put(tier, 1, 1)
    tier.get(1)
    after = tier.figures
    assert (after.samples, after.used_bytes, after.capacity_bytes) == (2, BLOCK, ROOM * BLOCK)


def test_file_keeps_blocks_and_memory_does_not(tmp_path: Path) -> None:
    for kind, keys in ((TierKind.FILE, (0, 1, 2)), (TierKind.DRAM, ())):
        tier = opened(settings_of(kind, tmp_path))
        for key in range(4):
            put(tier, key, 1)
        put(tier, 2, 2)
        tier.free(3, 1)
        tier.close()
        again = opened(settings_of(kind, tmp_path))
        assert tuple(key for key, _ in again.listed(0, 10)[0]) == keys
        assert all(again.get(key).data == content(key, 1 + (key == 2)) for key in keys)
        assert again.figures.keeps is (kind is TierKind.FILE)
        again.close()


def test_process_killed_while_writing_leaves_old_version(tmp_path: Path) -> None:
    """Without its header a written block is a free slot; with both headers the newer version counts."""
    settings = settings_of(TierKind.FILE, tmp_path)
    tier = opened(settings)
    put(tier, 1, 1)
    slots = tier._slots
    slots.write(9, content(1, 2))
    tier.close()
    assert opened_versions(settings) == {1: 1}
    tier = opened(settings)
    tier._slots.write(9, content(1, 2))
    tier._slots.label(9, 1, 2, zlib.crc32(content(1, 2)))
    tier.close()
    assert opened_versions(settings) == {1: 2}
    assert opened_versions(settings) == {1: 2}


def opened_versions(settings: TierSettings) -> dict[int, int]:
    """Return what a new process finds."""
    tier = opened(settings)
    try:
        return {key: tier.get(key).version for key, _ in tier.listed(0, 10)[0]}
    finally:
        tier.close()


def test_damage_on_disk_is_an_error_not_content(tmp_path: Path) -> None:
    settings = settings_of(TierKind.FILE, tmp_path)
    tier = opened(settings)
    put(tier, 1, 1)
    put(tier, 2, 1)
    labels = {key: slot for slot, key, _, _ in tier._slots.labels()}
    tier.close()
    with (tmp_path / "blocks").open("r+b") as file:
        file.seek(BLOCK + labels[1] * BLOCK + 100)  # the labels of 20 slots fit into one block
        file.write(b"\xff")
        file.seek(labels[2] * 32 + 10)
        file.write(b"\xff")
    tier = opened(settings)
    with pytest.raises(DamagedError, match="tier t: block 1 does not match its checksum"):
        tier.get(1)
    with pytest.raises(NoBlockError):
        tier.get(2)
    tier.close()


def test_file_of_others_or_of_another_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "blocks"
    settings = settings_of(TierKind.FILE, tmp_path)
    path.write_bytes(b"x")
    path.chmod(0o600)
    with pytest.raises(TierError, match=r"tier t: .*blocks has 1 bytes, not the \d+ of its capacity"):
        opened(settings)
    path.chmod(0o644)
    with pytest.raises(TierError, match="not a file of this user alone"):
        opened(settings)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TierError, match=r"tier t: .*blocks: Too many levels of symbolic links"):
        opened(settings)


def test_file_belongs_to_one_process(tmp_path: Path) -> None:
    settings = settings_of(TierKind.FILE, tmp_path)
    tier = opened(settings)
    with pytest.raises(TierError, match=f"process {os.getpid()} has it"):
        opened(settings)
    tier.close()
    opened(settings).close()


def test_refusal_of_the_kernel_names_the_node(tmp_path: Path) -> None:
    with pytest.raises(TierError, match="tier t: the kernel refuses memory of NUMA node 1000: "):
        opened(settings_of(TierKind.NUMA, tmp_path, numa_node=1000))
    with pytest.raises(TierError, match=r"tier t: \d+ bytes of memory: "):
        opened(settings_of(TierKind.DRAM, tmp_path, capacity_bytes=1 << 49))
