"""A pool in use: it decides where each request runs, brings its blocks there, and has it run.

Each host with cores runs as many requests at a time as it has cores; others wait in its queue. A host that does not
answer leaves the pool until it returns; requests that it had are decided on again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from controller.memory.connections import client_context
from controller.memory.errors import HostDownError, MemoryPoolError, RefusedError
from controller.memory.messages import Description, Run
from controller.memory.pool.catalogue import Block, Catalogue, HostShape
from controller.memory.pool.deciding import Decider, Decision, View
from controller.memory.pool.hosts import RemoteHost
from controller.memory.pool.mover import Moved, Mover
from controller.memory.pool.observing import ActorLoad, Situation, WayFigures
from controller.memory.pool.settings import MemoryPoolSettings
from controller.memory.pool.values import Place, Request, Result, Writes
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.errors import MillraceError

LOGGER: Final = logging.getLogger("millrace.memory")
_CLOSED: Final = "the pool is closed"
_MOVES_AT_A_TIME: Final = 8
_RECENT: Final = 1 / 16
"""Weight of the newest request in the mean of a host's."""


@dataclass(slots=True)
class _Job:
    request: Request
    submitted_ns: int
    key: str
    outcome: Future[Result]
    utilisation: float = 0.0
    attempts: int = 0


class MemoryPool(Closing):
    """A pool over hosts, from construction until it is closed; safe for concurrent use."""

    def __init__(
        self, settings: MemoryPoolSettings, decider: Decider, clock_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """Connect to the hosts; raise MemoryPoolError if one refuses us, or one was never seen.

        All must be there at first: their tiers are not known otherwise.
        """
        self.settings, self.decider, self._clock_ns = settings, decider, clock_ns
        context = None if settings.tls is None else client_context(settings.tls)
        within_s = settings.answer_ns / NS_PER_S
        self._hosts = [RemoteHost(host.name, host.address, context, settings.name, within_s) for host in settings.hosts]
        try:
            self.descriptions = [host.open() for host in self._hosts]
            self.block_bytes = _block_bytes(self.descriptions)
            self.actors = tuple(number for number, host in enumerate(self.descriptions) if host.cores)
            if not self.actors:
                raise RefusedError("no host of the pool has cores")
            self.catalogue = Catalogue([_shape(host) for host in self.descriptions])
            self.mover = Mover(self.catalogue, self._hosts, self.block_bytes, settings.room_ns, clock_ns)
            for number in range(len(self._hosts)):
                self._take_blocks(number)
            self.measure()
        except BaseException:
            for host in self._hosts:
                host.close()
            raise
        floats = sum(host.cores * host.float_ops_per_s for host in self.descriptions)
        ints = sum(host.cores * host.int_ops_per_s for host in self.descriptions)
        self._int_ratio = floats / max(ints, 1)
        self._assigned = [0] * len(self.actors)
        self._service_ns = [0.0] * len(self.actors)
        """Recent mean of a request's time without its wait."""
        self._numbers = count()
        self.counts: Counter[str] = Counter()
        """Requests by the host that they ran on, and by error."""
        self._is_closed = threading.Event()
        self._queues = [queue.SimpleQueue[_Job | None]() for _ in self.actors]
        self._threads = [
            threading.Thread(target=self._work, args=(action,), name=f"memory-{self._hosts[host].name}", daemon=True)
            for action, host in enumerate(self.actors)
            for _ in range(self.descriptions[host].cores)
        ]
        self._threads.append(threading.Thread(target=self._call_again, name="memory-retry", daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, request: Request) -> Future[Result]:
        """Decide where a request runs and queue it there; the result tells of a failure, too.

        Raise RefusedError if too many wait, or if the pool is closed.
        """
        job = _Job(request, self._clock_ns(), f"request-{next(self._numbers)}", Future())
        if not request.blocks:
            job.outcome.set_result(Result("", error="it names no block"))
            return job.outcome
        with self.mover.lock:
            if self._is_closed.is_set():
                raise RefusedError(_CLOSED)
            if sum(self._assigned) >= self.settings.waiting:
                raise RefusedError(f"{self.settings.waiting} requests wait: try again later")
            self._assign(job)
        return job.outcome

    def run(self, request: Request) -> Result:
        """Run a request and return its result; raise MemoryPoolError on failure."""
        result = self.submit(request).result()
        if result.error:
            raise MemoryPoolError(result.error)
        return result

    def read(self, key: int) -> bytes:
        """Return a block's content; raise NoBlockError if it was never written, HostDownError if its host is away."""
        with self.mover.held([key]), self.mover.noticing():
            with self.mover.lock:
                block = self.mover.known(key)
                source, version = block.source, block.version
            self.mover.require_up(source.host)
            return bytes(self._hosts[source.host].read(source.tier, key, version).body)

    def write(self, key: int, data: bytes) -> None:
        """Write a block to its home; raise MemoryPoolError. It is not cached by this."""
        with self.mover.held([key]), self.mover.noticing():
            with self.mover.lock:
                block = self.catalogue.block(key)
                home, version, cached = block.home, self.catalogue.next_version(key), block.cached
            try:
                self.mover.require_up(home.host)
                self._hosts[home.host].write(home.tier, key, version, data)
            except MemoryPoolError:
                self._forget({key: None})
                raise
            if cached is not None:
                self.mover.drop_copy(key)
            self.mover.came_home(key, version)

    def flush(self) -> int:
        """Bring all written blocks home; return how many were not there. Raise MemoryPoolError if a home is away."""
        with self.mover.lock:
            dirty = [block.key for block in self.catalogue.blocks.values() if block.is_dirty]
        brought = 0
        for key in dirty:
            with self.mover.held([key]), self.mover.noticing():
                brought += self.mover.bring_home(key)
        return brought

    def move(self, key: int, host: int) -> Moved:
        """Bring a block into the fast memory of a host; raise MemoryPoolError, and nothing has changed then."""
        moved = Moved()
        with self.mover.held([key]), self.mover.noticing():
            self.mover.fetch(key, Place(host, 0), moved)
        return moved

    def clear_caches(self) -> None:
        """Bring all blocks home, so that a comparison begins with empty fast memories."""
        with self.mover.lock:
            cached = [block.key for block in self.catalogue.blocks.values() if block.cached is not None]
        with ThreadPoolExecutor(_MOVES_AT_A_TIME) as workers:
            for _ in workers.map(self._take_home, cached):
                pass

    def _take_home(self, key: int) -> None:
        with self.mover.held([key]), self.mover.noticing():
            while self.catalogue.blocks[key].cached is not None:
                self.mover.evict(key, Moved())

    def measure(self) -> None:
        """Ask all hosts for their tiers' figures, and have those with cores measure the ways to the others."""
        self.refresh()
        for destination in self.actors:
            for source in range(len(self._hosts)):
                if source != destination and self.catalogue.up[source] and self.catalogue.up[destination]:
                    self._measure_way(destination, source)

    def refresh(self) -> None:
        """Ask all hosts for their tiers' figures."""
        for number, host in enumerate(self._hosts):
            if self.catalogue.up[number]:
                try:
                    self.descriptions[number] = host.status()
                except HostDownError as error:
                    self.mover.down(error)

    def _measure_way(self, destination: int, source: int) -> None:
        with self.mover.lock:
            blocks: Sequence[Block] = tuple(self.catalogue.blocks.values())
        at_source = (block for block in blocks if block.home.host == source and block.home_version)
        known = next(at_source, None)
        try:
            way = self._hosts[destination].measure(
                self._hosts[source].address, None if known is None else (known.home.tier, known.key)
            )
        except HostDownError as error:
            self.mover.down(error)
            return
        with self.mover.lock:
            before = self.mover.ways.get((destination, source), WayFigures())
            rate = way.rate_bps if known is not None else before.rate_bps
            self.mover.ways[destination, source] = WayFigures(way.round_trip_ns // 2, rate)

    def close(self) -> None:
        """End all work; what waits is not run. Blocks stay where they are."""
        with self.mover.lock:
            if self._is_closed.is_set():
                return
            # Nothing is queued from now on, so that each thread's end is the last in its queue.
            self._is_closed.set()
        for action, number in enumerate(self.actors):
            for _ in range(self.descriptions[number].cores):
                self._queues[action].put(None)
        for thread in self._threads:
            thread.join()
        for host in self._hosts:
            host.close()

    @property
    def situation(self) -> Situation:
        """State for observations; the lock must be held."""
        slots = sum(self.catalogue.hosts[host].cores for host in self.actors)
        running = sum(
            min(assigned, self.catalogue.hosts[host].cores)
            for assigned, host in zip(self._assigned, self.actors, strict=True)
        )
        loads = [
            ActorLoad(
                assigned,
                self.mover.arriving[host],
                self.mover.leaving[host],
                service_ns,
                _local_ns(self.descriptions[host], self.block_bytes),
                max(self.descriptions[host].float_ops_per_s, 1),
                max(self.descriptions[host].int_ops_per_s, 1),
            )
            for host, assigned, service_ns in zip(self.actors, self._assigned, self._service_ns, strict=True)
        ]
        return Situation(
            self.catalogue, self.actors, self.block_bytes, running, slots, self._int_ratio, self.mover.ways, loads
        )

    def _assign(self, job: _Job) -> None:
        """Decide on a job and queue it; the lock is held."""
        situation, blocks = self.situation, job.request.blocks
        view = View(self.catalogue, self.actors, tuple(self._assigned), self.block_bytes, len(blocks))
        made_for = self.decider.made_for
        seen = situation.observe(job.request, has_network=made_for.network, has_load=made_for.load)
        if not seen.candidates.any():
            up = [host for host in self.actors if self.catalogue.up[host]]
            problem = (
                f"its {len(blocks)} blocks do not fit into the fast memory of any host" if up else "no host answers"
            )
            job.outcome.set_result(Result("", error=problem))
            self.counts["refused"] += 1
            return
        decision = self.decider.decide(seen, view, job.key)
        self.decider.note(job.key, decision)
        job.utilisation = situation.running / max(situation.slots, 1)
        self._put(job, decision)

    def _put(self, job: _Job, decision: Decision) -> None:
        self._assigned[decision.action] += 1
        self._queues[decision.action].put(job)

    def _work(self, action: int) -> None:
        host = self.actors[action]
        while True:
            job = self._queues[action].get()
            if job is None:
                return
            if self._is_closed.is_set():
                job.outcome.set_result(Result("", error=_CLOSED))
                continue
            begin_ns, is_down = self._clock_ns(), False
            try:
                result = self._carried_out(host, job)
            except HostDownError as error:
                self.mover.down(error)
                is_down = True
                result = Result(self._hosts[host].name, error=str(error))
            except MillraceError as error:
                result = Result(self._hosts[host].name, error=str(error))
            except BaseException as error:
                job.outcome.set_exception(error)  # a bug: whoever waits shall see it
                raise
            self._settle(action, job, replace(result, wait_ns=begin_ns - job.submitted_ns), is_down=is_down)

    def _settle(self, action: int, job: _Job, result: Result, *, is_down: bool) -> None:
        """Tell the decider and whoever waits; a job whose host, or a host with its data, died is decided on again."""
        with self.mover.lock:
            self._assigned[action] -= 1
            if not result.error:
                service_ns = result.response_ns - result.wait_ns
                self._service_ns[action] += _RECENT * (service_ns - self._service_ns[action])
            self.decider.came(job.key, job.utilisation, None if result.error else result)
            job.attempts += 1
            if is_down and job.attempts <= len(self._hosts) and not self._is_closed.is_set():
                self.counts["decided again"] += 1
                job.key = f"{job.key}-again"
                self._assign(job)
                return
            self.counts["failed" if result.error else result.host] += 1
        job.outcome.set_result(result)

    def _carried_out(self, host: int, job: _Job) -> Result:
        request, place, moved = job.request, Place(host, 0), Moved()
        self._check(request)
        self.mover.require_up(host)
        with self.mover.held(request.blocks):
            written = dict.fromkeys(request.writes)
            try:
                for key in request.reads:
                    self.mover.fetch(key, place, moved)
                versions, reserved = self._prepare_writes(tuple(written), place, moved)
            except BaseException:
                self._forget(written)
                raise
            data_begin_ns = self._clock_ns()
            try:
                for key in request.data.keys() & written.keys():
                    self._hosts[host].write(0, key, versions[key], request.data[key])
                run = Run(
                    reads=request.reads,
                    writes=tuple((key, version) for key, version in versions.items() if key not in request.data),
                    float_operations=request.float_operations,
                    int_operations=request.int_operations,
                )
                served_ns = data_begin_ns + self._hosts[host].run(0, run).data_ns
            except BaseException as error:
                with self.mover.lock:
                    for _ in reserved:
                        self.catalogue.give_up(place)
                self._forget(written)
                if isinstance(error, MemoryPoolError) and not isinstance(error, HostDownError) and written:
                    self.mover.out_of_step(host, error)
                raise
            for key, version in versions.items():
                if key in reserved:
                    self.mover.switch(key, place, version)
                else:
                    self.mover.wrote(key, version)
            if self.settings.writes is Writes.THROUGH:
                for key in written:
                    self.mover.bring_home(key)
                served_ns = self._clock_ns() if written else served_ns
            with self.mover.lock:
                for key in request.blocks:
                    self.catalogue.touch(key)
        return Result(
            self._hosts[host].name,
            latency_ns=served_ns - job.submitted_ns,
            response_ns=self._clock_ns() - job.submitted_ns,
            evicted_bytes=moved.evicted_bytes,
            eviction_ns=moved.eviction_ns,
            moved_bytes=moved.moved_bytes,
            remote_bytes=moved.remote_bytes,
        )

    def _check(self, request: Request) -> None:
        for key, data in request.data.items():
            if key not in request.writes or len(data) != self.block_bytes:
                raise RefusedError(f"data of block {key}: {len(data)} bytes, not {self.block_bytes} of a written block")

    def _prepare_writes(
        self, keys: tuple[int, ...], place: Place, moved: Moved
    ) -> tuple[dict[int, int], frozenset[int]]:
        """Reserve room for written blocks that are not there; return the versions to write, and which blocks those are.

        They are not fetched: a write replaces a whole block.
        """
        reserved: set[int] = set()
        try:
            for key in keys:
                with self.mover.lock:
                    is_there = self.catalogue.block(key).cached == place
                if not is_there:
                    self.mover.make_room(place, moved)
                    reserved.add(key)
            with self.mover.lock:
                return {key: self.catalogue.next_version(key) for key in keys}, frozenset(reserved)
        except BaseException:
            with self.mover.lock:
                for _ in reserved:
                    self.catalogue.give_up(place)
            raise

    def _forget(self, keys: dict[int, None]) -> None:
        with self.mover.lock:
            for key in keys:
                self.catalogue.forget(key)

    def _call_again(self) -> None:
        """Call hosts that are down, and take them back with what they have."""
        while not self._is_closed.wait(self.settings.retry_ns / NS_PER_S):
            for number, host in enumerate(self._hosts):
                if self.catalogue.up[number]:
                    continue
                # Still down, or it refuses: the next round tries again.
                with suppress(MemoryPoolError):
                    description = host.open()
                    if _shape(description) != self.catalogue.hosts[number]:
                        LOGGER.error("host %s has other tiers than before: it stays out of the pool", host.name)
                        continue
                    self.descriptions[number] = description
                    self._take_blocks(number)
                    LOGGER.info("host %s is back", host.name)

    def _take_blocks(self, number: int) -> None:
        host, tiers = self._hosts[number], len(self.catalogue.hosts[number].capacities)
        self.mover.returned(number, {tier: host.held(tier) for tier in range(tiers)})


def _block_bytes(descriptions: Sequence[Description]) -> int:
    sizes = {host.block_bytes for host in descriptions}
    if len(sizes) != 1:
        raise RefusedError(f"hosts have blocks of different sizes: {', '.join(map(str, sorted(sizes)))} bytes")
    return sizes.pop()


def _shape(host: Description) -> HostShape:
    return HostShape(
        host.host,
        host.cores,
        tuple(tier.capacity_bytes // host.block_bytes for tier in host.tiers),
        tuple(not tier.is_cache for tier in host.tiers),
    )


def _local_ns(host: Description, block_bytes: int) -> float:
    """Return the time of reading a block from a host's own slowest tier, 0 if it was not measured."""
    rates = [tier.read_bps for tier in host.tiers if tier.read_bps]
    return 8 * block_bytes * NS_PER_S / min(rates) if rates else 0.0
