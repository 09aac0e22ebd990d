"""Blocks of a machine by tier and key, with versions and checksums; safe for concurrent use.

A new version of a block is written to a free slot and replaces the old one once it is whole. A block that is read is
checked against its checksum.
"""

from __future__ import annotations

import threading
import time
import zlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.memory.errors import DamagedError, FullError, NoBlockError, RefusedError
from controller.memory.host.sensing import Sensor
from controller.memory.host.settings import HostSettings, TierSettings
from controller.memory.host.tiers import SPARE, Slots, open_slots
from controller.memory.messages import TierFigures
from dataplane.closing import Closing


@dataclass(frozen=True, slots=True)
class Stored:
    """A block in a slot."""

    slot: int
    version: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Content:
    """A block that was read."""

    data: bytes
    version: int
    checksum: int


class Tier:
    """A tier's blocks."""

    def __init__(self, settings: TierSettings, block_bytes: int, *, is_home: bool, clock_ns: Callable[[], int]) -> None:
        """Raise TierError if the memory or the file cannot be had."""
        self.settings, self.block_bytes, self.is_home = settings, block_bytes, is_home
        self.capacity = settings.capacity_bytes // block_bytes
        self.sensor = Sensor(clock_ns)
        self._slots: Slots = open_slots(settings, self.capacity + SPARE, block_bytes)
        self._lock = threading.Lock()
        self._blocks: dict[int, Stored] = {}
        self._free: set[int] = set()
        self._begun = 0
        """Slots from here on were never used; a set of all would take more memory than small blocks themselves."""
        self._coming = 0
        """Blocks being written that were not there before: they count, so that writers do not exceed the capacity."""
        self._readers: dict[int, int] = {}
        self._dropped: set[int] = set()
        try:
            self._recover()
        except BaseException:
            self._slots.close()
            raise

    def get(self, key: int, version: int = 0) -> Content:
        """Return a block; raise NoBlockError for a missing one or another version, DamagedError if it has changed."""
        with self._lock:
            stored = self._blocks.get(key)
            if stored is None or version not in {0, stored.version}:
                have = "it is not there" if stored is None else f"it is in version {stored.version}"
                wanted = f" in version {version}" if version else ""
                raise NoBlockError(f"tier {self.settings.name}: block {key}{wanted}: {have}")
            self._readers[stored.slot] = self._readers.get(stored.slot, 0) + 1
        try:
            with self.sensor.reading(self.block_bytes):
                data = self._slots.read(stored.slot)
        finally:
            self._leave(stored.slot)
        if zlib.crc32(data) != stored.checksum:
            raise DamagedError(f"tier {self.settings.name}: block {key} does not match its checksum")
        return Content(data, stored.version, stored.checksum)

    def put(self, key: int, version: int, data: bytes | memoryview, checksum: int) -> None:
        """Store a block; raise FullError without room, DamagedError for another checksum, RefusedError for its size.

        An older version is replaced, a newer one stays.
        """
        if len(data) != self.block_bytes:
            raise RefusedError(f"a block of {len(data)} bytes, not {self.block_bytes}")
        if zlib.crc32(data) != checksum:
            raise DamagedError(f"block {key} arrived changed: it does not match its checksum")
        with self._lock:
            before = self._blocks.get(key)
            if before is not None and before.version > version:
                return
            is_full = before is None and len(self._blocks) + self._coming >= self.capacity
            slot = None if is_full else self._taken()
            if slot is None:
                raise FullError(f"tier {self.settings.name} is full: it has room for {self.capacity} blocks")
            self._coming += before is None
        try:
            with self.sensor.writing(self.block_bytes):
                self._slots.write(slot, data)
            self._slots.label(slot, key, version, checksum)
        except BaseException:
            with self._lock:
                self._free.add(slot)
                self._coming -= before is None
            raise
        with self._lock:
            self._coming -= before is None
            old = self._blocks.get(key)
            is_newest = old is None or old.version <= version
            if is_newest:
                self._blocks[key] = Stored(slot, version, checksum)
        if not is_newest:
            self._drop(slot)
        elif old is not None:
            self._drop(old.slot)

    def free(self, key: int, version: int) -> None:
        """Remove a block if it has this version or an older one; a missing one is fine."""
        with self._lock:
            stored = self._blocks.get(key)
            if stored is None or stored.version > version:
                return
            del self._blocks[key]
        self._drop(stored.slot)

    def listed(self, start: int, most: int) -> tuple[tuple[tuple[int, int], ...], bool]:
        """Return at most this many keys from `start` on with their versions, in order, and whether there are more."""
        with self._lock:
            keys = sorted(self._blocks)
            at = bisect_left(keys, start)
            return tuple((key, self._blocks[key].version) for key in keys[at : at + most]), len(keys) > at + most

    def measure(self) -> None:
        """Measure latency and rates in a spare slot, if one is free now."""
        with self._lock:
            slot = self._taken()
        if slot is None:
            return
        try:
            self.sensor.measure(self._slots, slot, self.block_bytes)
        finally:
            with self._lock:
                self._free.add(slot)

    @property
    def figures(self) -> TierFigures:
        """The tier as its sensors see it."""
        sensor = self.sensor
        with self._lock:
            used = len(self._blocks)
        return TierFigures(
            name=self.settings.name,
            kind=self.settings.kind.value,
            capacity_bytes=self.capacity * self.block_bytes,
            used_bytes=used * self.block_bytes,
            is_cache=not self.is_home,
            keeps=self._slots.keeps,
            read_ns=sensor.read_ns,
            write_ns=sensor.write_ns,
            read_bps=sensor.read_bps,
            write_bps=sensor.write_bps,
            samples=sensor.samples,
            note=self._slots.note,
        )

    def close(self) -> None:
        """Release the memory or the file."""
        self._slots.close()

    def _recover(self) -> None:
        """Take what an earlier process left; of two versions of a block the newer one counts."""
        for slot, key, version, checksum in self._slots.labels():
            old, new = self._blocks.get(key), Stored(slot, version, checksum)
            if old is not None:
                old, new = sorted((old, new), key=lambda stored: stored.version)
                self._slots.clear(old.slot)
            self._blocks[key] = new
        used = {stored.slot for stored in self._blocks.values()}
        self._begun = max(used, default=-1) + 1
        self._free = set(range(self._begun)) - used

    def _taken(self) -> int | None:
        """Return a free slot, which is taken now; None without one. The lock is held."""
        if self._free:
            return self._free.pop()
        if self._begun == self.capacity + SPARE:
            return None
        self._begun += 1
        return self._begun - 1

    def _drop(self, slot: int) -> None:
        """Free a slot, once nobody reads it."""
        with self._lock:
            if self._readers.get(slot):
                self._dropped.add(slot)
                return
        self._slots.clear(slot)
        with self._lock:
            self._free.add(slot)

    def _leave(self, slot: int) -> None:
        with self._lock:
            left = self._readers.pop(slot) - 1
            if left:
                self._readers[slot] = left
            is_last = not left and slot in self._dropped
            if is_last:
                self._dropped.discard(slot)
        if is_last:
            self._drop(slot)


class Store(Closing):
    """All tiers of a machine."""

    def __init__(self, settings: HostSettings, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        """Raise TierError for a tier that cannot be had."""
        self.tiers: list[Tier] = []
        try:
            for number, tier in enumerate(settings.tiers):
                is_home = settings.is_home(number)
                self.tiers.append(Tier(tier, settings.block_bytes, is_home=is_home, clock_ns=clock_ns))
        except BaseException:
            self.close()
            raise

    def tier(self, number: int) -> Tier:
        """Return a tier; raise RefusedError if there is none of this number."""
        if not 0 <= number < len(self.tiers):
            raise RefusedError(f"there is no tier {number}, only {len(self.tiers)}")
        return self.tiers[number]

    def measure(self) -> None:
        """Measure all tiers."""
        for tier in self.tiers:
            tier.measure()

    @property
    def figures(self) -> Sequence[TierFigures]:
        """The tiers as their sensors see them."""
        return tuple(tier.figures for tier in self.tiers)

    def close(self) -> None:
        """Release all memory and files."""
        for tier in self.tiers:
            tier.close()
