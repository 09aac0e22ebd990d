"""Moves of blocks between tiers: copy, verify, switch, free, in this order, so that a death in between loses nothing.

Until the switch the source has the block, after it the destination; copies that a death leaves over are freed when the
host returns. Reads and moves of a block exclude each other; what is evicted is the least recently used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from controller.memory.errors import DamagedError, FullError, HostDownError, MemoryPoolError, NoBlockError
from controller.memory.pool.catalogue import Block, Catalogue
from controller.memory.pool.hosts import RemoteHost
from controller.memory.pool.observing import WayFigures
from controller.memory.pool.values import Lost, Place
from dataplane.clock import NS_PER_S

LOGGER: Final = logging.getLogger("millrace.memory")
_RECENT: Final = 1 / 16
"""Weight of the newest copy in the mean rate of a way."""


@dataclass(slots=True)
class Moved:
    """Cost of the moves for a request."""

    moved_bytes: int = 0
    remote_bytes: int = 0
    evicted_bytes: int = 0
    eviction_ns: int = 0


class Mover:
    """Moves blocks of a catalogue; `lock` guards the catalogue, and tells of each change."""

    def __init__(
        self,
        catalogue: Catalogue,
        hosts: Sequence[RemoteHost],
        block_bytes: int,
        room_ns: int,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.catalogue, self.hosts, self.block_bytes = catalogue, hosts, block_bytes
        self.lock = threading.Condition()
        self.busy: set[int] = set()
        self.ways: dict[tuple[int, int], WayFigures] = {}
        self.arriving, self.leaving = Counter[int](), Counter[int]()
        """Blocks on their way between hosts, by destination and by source."""
        self.lost: dict[int, Lost] = {}
        """Versions that died with a host and have not been found again."""
        self._room_ns, self._clock_ns = room_ns, clock_ns
        self._by_address = {host.address: number for number, host in enumerate(hosts)}
        self._by_address |= {host.name: number for number, host in enumerate(hosts)}

    @contextmanager
    def held(self, keys: Iterable[int]) -> Iterator[None]:
        """Keep blocks from being moved or evicted by others; all at once, so that nobody waits in a circle."""
        wanted = set(keys)
        with self.lock:
            self.lock.wait_for(lambda: wanted.isdisjoint(self.busy))
            self.busy |= wanted
        try:
            yield
        finally:
            with self.lock:
                self.busy -= wanted
                self.lock.notify_all()

    def fetch(self, key: int, place: Place, moved: Moved) -> None:
        """Bring a held block's newest version into a cache; raise MemoryPoolError, and nothing has changed then."""
        with self.lock:
            if self.known(key).cached == place:
                return
        self.make_room(place, moved)
        try:
            source, version = self._copied(key, place)
        except BaseException:
            self._give_up(place)
            raise
        moved.moved_bytes += self.block_bytes
        moved.remote_bytes += self.block_bytes * (source.host != place.host)
        self.switch(key, place, version)

    def _copied(self, key: int, place: Place) -> tuple[Place, int]:
        """Copy a held block's newest version to a place; return its source and version."""
        while True:
            with self.lock:
                block = self.known(key)
                source, version, is_spare = block.source, block.version, block.cached is not None and not block.is_dirty
                if not self.catalogue.up[source.host]:
                    name = self.hosts[source.host].name
                    raise NoBlockError(f"block {key} is on host {name}, which does not answer")
            try:
                self.copy(key, version, source, place)
            except DamagedError as error:
                if not is_spare:
                    raise
                LOGGER.warning("%s; its home has it, too", error)
                self.drop_copy(key)
                continue
            return source, version

    def known(self, key: int) -> Block:
        """Return a block that has content; raise NoBlockError otherwise, also if its newest version died with a host.

        An older version that is left is not returned silently: it counts once the block is written again.
        """
        if (lost := self.lost.get(key)) is not None:
            left = "nothing is left" if lost.left is None else f"version {lost.left} is left"
            raise NoBlockError(f"block {key}: version {lost.version} died with a host, {left}; write it again")
        return self.catalogue.known(key)

    def drop_copy(self, key: int) -> None:
        """Give up the cached copy of a held block whose home is as new."""
        with self.lock:
            block = self.catalogue.blocks[key]
            place, version = block.cached, block.version
        if place is not None:
            self._free(place, key, version)
            with self.lock:
                self.catalogue.drop(key)
                self.lock.notify_all()

    def wrote(self, key: int, version: int) -> None:
        """Note that a held block was written where it is cached."""
        with self.lock:
            self.catalogue.wrote(key, version)
            self._found(key, version)

    def out_of_step(self, host: int, error: MemoryPoolError) -> None:
        """Take a host out that failed in the middle of writes; it returns with the list of what it has."""
        self.down(HostDownError(self.hosts[host].name, f"what it has is uncertain: {error}"))

    def switch(self, key: int, place: Place, version: int) -> None:
        """Note that a cache has a held block's newest version, and free the cache that had it."""
        with self.lock:
            before = self.catalogue.switch(key, place, version)
            self._found(key, version)
        if before is not None and before != place:
            try:
                self._free(before, key, version)
            finally:
                self._give_up(before)
        elif before == place:
            self._give_up(place)

    def make_room(self, place: Place, moved: Moved) -> None:
        """Reserve a slot of a cache; evict the least recently used block if it is full.

        Raise FullError if for some time nothing can be evicted.
        """
        until_ns = self._clock_ns() + self._room_ns
        while True:
            with self.lock:
                if self.catalogue.has_room(place):
                    self.catalogue.reserve(place)
                    return
                victim = self.catalogue.victim(place, self.busy)
                if victim is None:
                    left_ns = until_ns - self._clock_ns()
                    if left_ns <= 0 or not self.lock.wait(left_ns / NS_PER_S):
                        raise self._full(place)
                    continue
                self.busy.add(victim)
            begin_ns = self._clock_ns()
            try:
                self.evict(victim, moved)
            except HostDownError as error:
                # Its home, or this host: the block stays where it is, and another one is chosen.
                self.down(error)
                if not self.catalogue.up[place.host]:
                    raise
            except DamagedError as error:
                self._give_up_block(victim, error)
            finally:
                with self.lock:
                    self.busy.discard(victim)
                    self.lock.notify_all()
                moved.eviction_ns += self._clock_ns() - begin_ns

    def _give_up_block(self, key: int, error: DamagedError) -> None:
        """Give up a copy that is damaged, or it would be the next victim for ever; without a good one it is lost."""
        with self.lock:
            block = self.catalogue.blocks[key]
            if block.is_dirty:
                self.lost[key] = Lost(key, block.version, block.home_version or None)
        LOGGER.error("given up: %s", error)
        self.drop_copy(key)
        with self.lock:
            block.last, block.version = max(block.last, block.version), block.home_version

    def evict(self, key: int, moved: Moved) -> None:
        """Move a held block out of its cache: to the next tier of its host, or home."""
        with self.lock:
            block = self.catalogue.known(key)
            place, version = block.cached, block.version
            if place is None:
                return
            below = self.catalogue.below(place)
        if below is None:
            self.bring_home(key)
            self._free(place, key, version)
            with self.lock:
                self.catalogue.drop(key)
        else:
            self.make_room(below, moved)
            try:
                self.copy(key, version, place, below)
            except BaseException:
                self._give_up(below)
                raise
            self.switch(key, below, version)
        moved.evicted_bytes += self.block_bytes

    def bring_home(self, key: int) -> bool:
        """Copy a held block's newest version to its home; return False if it was there."""
        with self.lock:
            block = self.catalogue.known(key)
            if not block.is_dirty:
                return False
            source, version, home = block.source, block.version, block.home
        self.copy(key, version, source, home)
        self.came_home(key, version)
        return True

    def came_home(self, key: int, version: int) -> None:
        """Note that the home of a held block has a version."""
        with self.lock:
            self.catalogue.came_home(key, version)
            self._found(key, version)

    def copy(self, key: int, version: int, source: Place, destination: Place) -> None:
        """Have the destination's host copy a block and verify it; raise HostDownError if either host is away."""
        for place in (source, destination):
            self.require_up(place.host)
        address = "" if source.host == destination.host else self.hosts[source.host].address
        begin_ns = self._clock_ns()
        try:
            self._count(source.host, destination.host, int(bool(address)))
            self.hosts[destination.host].copy(destination.tier, key, version, address, source.tier)
        except DamagedError as error:
            raise DamagedError(f"block {key} of host {self.hosts[source.host].name}: {error}") from None
        finally:
            self._count(source.host, destination.host, -int(bool(address)))
        if address:
            self._note_way(destination.host, source.host, self._clock_ns() - begin_ns)

    def require_up(self, host: int) -> None:
        """Raise HostDownError for a host that has left the pool, also if it would answer: it is not taken back yet."""
        if not self.catalogue.up[host]:
            raise HostDownError(self.hosts[host].name, "it has left the pool")

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Take a host out of the pool if the block fails because it does not answer."""
        try:
            yield
        except HostDownError as error:
            self.down(error)
            raise

    def down(self, error: HostDownError) -> None:
        """Take a host that did not answer out of the pool, until it returns."""
        host = self._by_address.get(error.host)
        if host is None:
            return
        with self.lock:
            if not self.catalogue.up[host]:
                return
            lost = self.catalogue.host_died(host)
            self.lost |= {each.key: each for each in lost}
            self.lock.notify_all()
        LOGGER.warning("host %s is down: %s", self.hosts[host].name, error)
        if lost:
            LOGGER.error(
                "host %s took the newest versions of %d blocks, the first is %d",
                self.hosts[host].name,
                len(lost),
                lost[0].key,
            )

    def returned(self, host: int, held: Mapping[int, Mapping[int, int]]) -> None:
        """Take a host with its blocks into the pool, and have it free what is old."""
        with self.lock:
            # Blocks may be in use: no copy begins to or from a host that is down, so the list shows what it has.
            stale, lost = self.catalogue.host_returned(host, held)
            self.lost |= {each.key: each for each in lost}
            for key in list(self.lost):
                block = self.catalogue.blocks.get(key)
                if block is not None:
                    self._found(key, block.version)
            self.lock.notify_all()
        for place, key, version in stale:
            self._free(place, key, version)

    def _free(self, place: Place, key: int, version: int) -> None:
        try:
            self.hosts[place.host].free(place.tier, key, version)
        except HostDownError as error:
            self.down(error)
        except MemoryPoolError as error:
            LOGGER.warning("host %s keeps block %d: %s", self.hosts[place.host].name, key, error)

    def _give_up(self, place: Place) -> None:
        with self.lock:
            self.catalogue.give_up(place)
            self.lock.notify_all()

    def _found(self, key: int, version: int) -> None:
        lost = self.lost.get(key)
        if lost is not None and version >= lost.version:
            del self.lost[key]

    def _full(self, place: Place) -> FullError:
        host, capacity = self.hosts[place.host].name, self.catalogue.capacity(place)
        waiting = sum(key in self.busy for key in self.catalogue.cached_at(place))
        stuck = sum(self.catalogue.blocks[key].is_dirty for key in self.catalogue.cached_at(place))
        return FullError(
            f"tier {place.tier} of host {host} stays full: of {capacity} blocks {waiting} are in use, and {stuck} were"
            " written and wait for their homes"
        )

    def _count(self, source: int, destination: int, change: int) -> None:
        with self.lock:
            self.leaving[source] += change
            self.arriving[destination] += change

    def _note_way(self, destination: int, source: int, took_ns: int) -> None:
        """Update the mean rate of a way, and take its delay from measurements alone."""
        way = self.ways.get((destination, source))
        rate = 8 * self.block_bytes * NS_PER_S // max(took_ns, 1)
        with self.lock:
            if way is None:
                self.ways[destination, source] = WayFigures(rate_bps=rate)
            else:
                mean = round(way.rate_bps + _RECENT * (rate - way.rate_bps))
                self.ways[destination, source] = WayFigures(way.delay_ns, mean)
