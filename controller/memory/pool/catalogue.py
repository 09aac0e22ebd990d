"""Catalogue of a pool's blocks: pure bookkeeping of where they are, and which to evict.

Each block has a home, a slot in one tier that stays its own, and at most one newer or equal copy in a cache: the fast
memory of a host with cores, or a cache tier below it. A move copies and verifies before `cached_at` switches here;
only then is the source freed. Caches are ordered by use.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from controller.memory.errors import FullError, NoBlockError
from controller.memory.pool.values import Lost, Place


@dataclass(frozen=True, slots=True)
class HostShape:
    """A host's tiers in blocks, and which of them are homes."""

    name: str
    cores: int
    capacities: tuple[int, ...]
    homes: tuple[bool, ...]


@dataclass(slots=True)
class Block:
    """State of a block; `version` is the newest, 0 before the first write."""

    key: int
    home: Place
    version: int = 0
    home_version: int = 0
    cached: Place | None = None
    last: int = 0
    """Newest version ever given, also to writes that were lost: no two contents share a version."""

    @property
    def is_dirty(self) -> bool:
        """True if the home has an older version."""
        return self.version > self.home_version

    @property
    def source(self) -> Place:
        """Place of the newest version."""
        return self.home if self.cached is None else self.cached


class Catalogue:
    """Blocks of a pool, and the room in its tiers. Not safe for concurrent use: its owner holds a lock."""

    def __init__(self, hosts: Sequence[HostShape]) -> None:
        self.hosts = tuple(hosts)
        self.blocks: dict[int, Block] = {}
        self.up = [True] * len(hosts)
        self._cached: dict[Place, OrderedDict[int, None]] = {}
        self._coming: dict[Place, int] = {}
        self._at_home: dict[Place, int] = {}
        for number, host in enumerate(hosts):
            for tier, is_home in enumerate(host.homes):
                place = Place(number, tier)
                if is_home:
                    self._at_home[place] = 0
                else:
                    self._cached[place], self._coming[place] = OrderedDict(), 0
        self._turn = 0

    def block(self, key: int) -> Block:
        """Return a block, which gets a home if it is new; raise FullError if no home has room."""
        found = self.blocks.get(key)
        if found is None:
            found = self.blocks[key] = Block(key, self._new_home())
            self._at_home[found.home] += 1
        return found

    def known(self, key: int) -> Block:
        """Return a block that was written; raise NoBlockError for any other."""
        found = self.blocks.get(key)
        if found is None or not found.version:
            raise NoBlockError(f"block {key} was never written")
        return found

    def forget(self, key: int) -> None:
        """Give up a block that was never written."""
        found = self.blocks.get(key)
        if found is not None and not found.version and found.cached is None:
            del self.blocks[key]
            self._at_home[found.home] -= 1

    def capacity(self, place: Place) -> int:
        """Return how many blocks a tier holds."""
        return self.hosts[place.host].capacities[place.tier]

    def used(self, place: Place) -> int:
        """Return how many blocks of a tier are taken or promised."""
        if place in self._at_home:
            return self._at_home[place]
        return len(self._cached[place]) + self._coming[place]

    def has_room(self, place: Place) -> bool:
        """Return whether a cache has a free slot."""
        return self.used(place) < self.capacity(place)

    def reserve(self, place: Place) -> None:
        """Promise a free slot of a cache."""
        assert self.has_room(place)
        self._coming[place] += 1

    def give_up(self, place: Place) -> None:
        """Take back a promise."""
        self._coming[place] -= 1

    def victim(self, place: Place, busy: Container[int]) -> int | None:
        """Return the least recently used block of a cache that can be evicted now, None without one.

        A dirty block whose home is not reachable cannot.
        """
        for key in self._cached[place]:
            block = self.blocks[key]
            if key not in busy and (self.up[block.home.host] or not block.is_dirty):
                return key
        return None

    def below(self, place: Place) -> Place | None:
        """Return the next cache tier of the same host; None: what is evicted goes home."""
        following = Place(place.host, place.tier + 1)
        return following if following in self._cached else None

    def touch(self, key: int) -> None:
        """Note a use of a block."""
        block = self.blocks[key]
        if block.cached is not None:
            self._cached[block.cached].move_to_end(key)

    def next_version(self, key: int) -> int:
        """Return the version of the next write of a block."""
        block = self.blocks[key]
        block.last = max(block.last, block.version) + 1
        return block.last

    def switch(self, key: int, place: Place, version: int) -> Place | None:
        """Note that a verified copy in this version is in a promised slot; return the cache that it leaves.

        The slot there stays promised until it is freed and `give_up` is called.
        """
        block = self.blocks[key]
        before = block.cached
        self._coming[place] -= 1
        if before is not None:
            del self._cached[before][key]
            self._coming[before] += 1
        self._cached[place][key] = None
        block.cached, block.version = place, version
        return before

    def wrote(self, key: int, version: int) -> None:
        """Note that a cached block was written."""
        self.blocks[key].version = version

    def came_home(self, key: int, version: int) -> None:
        """Note that a verified copy in this version is at home."""
        block = self.blocks[key]
        block.home_version = max(block.home_version, version)
        block.version = max(block.version, version)

    def drop(self, key: int) -> Place | None:
        """Note that the cached copy is gone; return its place. The home must have the newest version."""
        block = self.blocks[key]
        before, block.cached = block.cached, None
        if before is not None:
            del self._cached[before][key]
        return before

    def local(self, host: int, keys: Sequence[int]) -> int:
        """Return how many of some blocks have their newest version on a host, in any tier."""
        found = (self.blocks.get(key) for key in keys)
        return sum(1 for block in found if block is not None and block.version and block.source.host == host)

    def host_died(self, host: int) -> tuple[Lost, ...]:
        """Note a host's end: what it cached is at home again; return the blocks that lost versions."""
        self.up[host] = False
        lost = []
        for place in list(self._cached):
            if place.host != host:
                continue
            for key in list(self._cached[place]):
                block = self.blocks[key]
                self.drop(key)
                if block.is_dirty:
                    lost.append(Lost(key, block.version, block.home_version or None))
                    block.last, block.version = max(block.last, block.version), block.home_version
        return tuple(lost)

    def host_returned(
        self, host: int, held: Mapping[int, Mapping[int, int]]
    ) -> tuple[tuple[tuple[Place, int, int], ...], tuple[Lost, ...]]:
        """Note that a host is there, with blocks by tier, as versions by key; return what to free, and what is lost.

        The newest version of a block counts, wherever it is. A home that has lost a block, as memory does, counts as
        empty.
        """
        self.up[host] = True
        stale: list[tuple[Place, int, int]] = []
        lost: list[Lost] = []
        for place in self._at_home:
            if place.host == host:
                self._take_home(place, held.get(place.tier, {}), stale, lost)
        for place in self._cached:
            if place.host == host:
                for key, version in held.get(place.tier, {}).items():
                    self._take_cached(place, key, version, stale)
        return tuple(stale), tuple(lost)

    def _take_home(
        self, place: Place, held: Mapping[int, int], stale: list[tuple[Place, int, int]], lost: list[Lost]
    ) -> None:
        for key, version in held.items():
            block = self.blocks.get(key)
            if block is None and self._at_home[place] < self.capacity(place):
                block = self.blocks[key] = Block(key, place)
                self._at_home[place] += 1
            if block is None or block.home != place:
                stale.append((place, key, version))
                continue
            block.home_version = version
            # A newer version than known is that of a write whose answer was lost: it is whole, and was not refused.
            block.version = max(block.version if block.cached is not None else 0, version)
        for block in self.blocks.values():
            if block.home == place and block.key not in held and block.home_version:
                block.home_version = 0
                if block.cached is None:
                    lost.append(Lost(block.key, block.version, None))
                    block.last, block.version = max(block.last, block.version), 0

    def _take_cached(self, place: Place, key: int, version: int, stale: list[tuple[Place, int, int]]) -> None:
        """Take a copy that a host has in a cache if it is the newest, or as new as home; else it shall be freed."""
        block = self.blocks.get(key)
        if block is not None and block.cached == place and block.version == version:
            return
        is_newest = block is None or version > block.version or (version == block.version and block.cached is None)
        if not is_newest or not self.has_room(place):
            stale.append((place, key, version))
            return
        block = self.block(key)
        if block.cached is not None:
            # An older copy elsewhere: it was taken from home while this host was away.
            stale.append((block.cached, key, block.version))
            self.drop(key)
        self._cached[place][key] = None
        block.cached, block.version = place, version

    def _new_home(self) -> Place:
        """Return the next home in turn that has room."""
        homes = list(self._at_home)
        for step in range(len(homes)):
            place = homes[(self._turn + step) % len(homes)]
            if self.up[place.host] and self._at_home[place] < self.capacity(place):
                self._turn = (self._turn + step + 1) % len(homes)
                return place
        raise FullError(f"no home has room: all {sum(map(self.capacity, homes))} blocks of the pool's homes are taken")

    def cached_at(self, place: Place) -> Iterator[int]:
        """Yield the blocks of a cache, the least recently used first."""
        return iter(self._cached[place])
