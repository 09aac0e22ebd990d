"""Engines around one switch in virtual time, natively: links with rate, delay, bounded queues, marks and loss.

Values are not added up: all workers have the same ones, so any contribution serves as the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

import numpy as np

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.kernels.layouts import BURST, LINK_BYTES, PACKET_BYTES, EngineState, Status
from dataplane.allreduce.kernels.loss_recovery import next_timer
from dataplane.allreduce.kernels.running import turn
from dataplane.allreduce.next_hop import NextHop
from dataplane.allreduce.transports import RingTransport, zeros
from dataplane.native import (
    Array,
    Struct,
    array_at,
    as_u32,
    as_u64,
    copy,
    kernel,
    kernel_library,
    load_be16,
    load_be32,
    load_u64,
    offset,
    store_be16,
    store_be32,
    store_u64,
    u8,
    u32,
    u64,
)
from dataplane.nic import NicPort, memory_pair
from dataplane.nic.ports.kernels.dispatch import commit, flush, receive, release, reserve
from dataplane.nic.ports.queue import PortQueue
from dataplane.wire.aggregation import Flags, Kind

JOB = 3
_NEVER = (1 << 64) - 1
_FRAME_BYTES = LINK_BYTES + PACKET_BYTES
_STRIDE = 1088
_PLACES = 4096
_BEHIND = 8
_RESULT, _AGAIN = Kind.RESULT << 24, Kind.AGAIN << 24


class Direction(Struct):
    """One direction of a worker's link: packets on their way, in order."""

    packets: Array[u8]
    due: Array[u64]
    first: u64
    last: u64
    free_ns: u64  # when the last packet has left
    sent: u64
    lost: u64
    overflown: u64


class Cell(Struct):
    """State of an item in the switch."""

    item: u32
    known: u32
    seen: u64
    done: u32
    congested: u32


class LinkedWorker(Struct):
    """A worker and its link."""

    engine: EngineState
    far: PortQueue
    up: Direction
    down: Direction
    finished_ns: u64
    starts_ns: u64


class World(Struct):
    """All of it."""

    places: Array[LinkedWorker]
    count: u32
    loss: u32  # of 2^32, as is the next
    overtaken: u32
    packet_ns: u64
    delay_ns: u64
    limit_ns: u64
    mark_ns: u64
    now_ns: u64
    until_ns: u64
    seed: u64
    cells: Array[Cell]
    values: Array[u8]
    mask: u32
    repeated: u32  # contributions that the switch had already
    frames: Array[u64]
    lengths: Array[u32]


@kernel
def simulate(world: World) -> bool:
    """Advance time until all engines are done; return whether they are."""
    while world.now_ns < world.until_ns:
        left: u32 = 0
        for at in range(as_u64(world.count)):
            worker = world.places[at]
            bring_up(world, worker, as_u32(at))
        for at in range(as_u64(world.count)):
            worker = world.places[at]
            bring_down(world, worker)
            if worker.starts_ns <= world.now_ns and worker.finished_ns == 0:
                run(world, worker)
            left += 1 if worker.finished_ns == 0 else 0
        if left == 0:
            return True
        world.now_ns = max(next_event(world), world.now_ns + 1)
    return False


@kernel
def next_event(world: World) -> u64:
    """Return the time of the next event."""
    soonest: u64 = _NEVER
    for at in range(as_u64(world.count)):
        worker = world.places[at]
        soonest = min(soonest, head_of(worker.up))
        soonest = min(soonest, head_of(worker.down))
        if worker.finished_ns == 0:
            soonest = min(soonest, max(next_timer(worker.engine), worker.starts_ns))
    return soonest


@kernel(inline=True)
def head_of(direction: Direction) -> u64:
    """Return when the next packet arrives."""
    return direction.due[direction.first & (_PLACES - 1)] if direction.first != direction.last else _NEVER


@kernel
def run(world: World, worker: LinkedWorker) -> None:
    """Let an engine do what it can, and take the packets that it sends."""
    engine = worker.engine
    engine.now_ns = world.now_ns
    engine.status = Status.RUNNING
    while turn(engine):
        pass
    if engine.status == Status.DONE:
        worker.finished_ns = world.now_ns
    while True:
        count: u32 = receive(worker.far, world.frames, world.lengths, BURST)
        for at in range(as_u64(count)):
            put(world, worker.up, offset(array_at(u8, world.frames[at]), LINK_BYTES))
        release(worker.far)
        if count == 0:
            return


@kernel
def put(world: World, direction: Direction, packet: Array[u8]) -> None:
    """Send a packet along a link, if it is not lost."""
    direction.sent += 1
    world.seed = world.seed * 6364136223846793005 + 1442695040888963407
    waits_ns: u64 = direction.free_ns - world.now_ns if direction.free_ns > world.now_ns else 0
    if waits_ns > world.limit_ns:
        direction.overflown += 1
        return
    direction.free_ns = world.now_ns + waits_ns + world.packet_ns
    if as_u32(world.seed >> 32) < world.loss:
        direction.lost += 1
        return
    slot: u64 = direction.last & (_PLACES - 1)
    kept: Array[u8] = offset(direction.packets, slot * _STRIDE)
    copy(kept, packet, PACKET_BYTES)
    if waits_ns > world.mark_ns:
        store_be32(kept, 0, load_be32(kept, 0) | as_u32(Flags.CONGESTED << 16))
    direction.due[slot] = direction.free_ns + world.delay_ns
    direction.last += 1
    if as_u32(world.seed & 0xFFFFFFFF) < world.overtaken and direction.last - direction.first > _BEHIND:
        overtaken: Array[u8] = offset(direction.packets, (direction.last - 1 - _BEHIND & (_PLACES - 1)) * _STRIDE)
        swap(kept, overtaken)


@kernel
def swap(first: Array[u8], other: Array[u8]) -> None:
    """Exchange two packets."""
    for at in range(PACKET_BYTES // 8):
        kept: u64 = load_u64(first, at * 8)
        store_u64(first, at * 8, load_u64(other, at * 8))
        store_u64(other, at * 8, kept)


@kernel
def bring_up(world: World, worker: LinkedWorker, child: u32) -> None:
    """Let the switch take the packets that have arrived."""
    while head_of(worker.up) <= world.now_ns:
        packet: Array[u8] = offset(worker.up.packets, (worker.up.first & (_PLACES - 1)) * _STRIDE)
        take(world, worker, child, packet)
        worker.up.first += 1


@kernel
def take(world: World, worker: LinkedWorker, child: u32, packet: Array[u8]) -> None:
    """Follow dataplane/allreduce/reference/aggregator.py, without values."""
    item: u32 = load_be32(packet, 4)
    cell = world.cells[item & world.mask]
    values: Array[u8] = offset(world.values, as_u64(item & world.mask) * _STRIDE)
    is_known: bool = cell.known != 0 and cell.item == item
    if is_known and cell.done != 0:
        store_be32(values, 0, (load_be32(values, 0) & 0xF0FFFFFF) | as_u32(_AGAIN))
        put(world, worker.down, values)
        return
    if cell.known != 0 and not is_known and as_u32(cell.item - item) < as_u32(1 << 31):
        return
    if not is_known:
        cell.item = item
        cell.known = 1
        cell.seen = 0
        cell.done = 0
        cell.congested = 0
    bit: u64 = as_u64(1) << as_u64(child)
    if (cell.seen & bit) != 0:
        world.repeated += 1
        return
    cell.seen |= bit
    cell.congested |= load_be32(packet, 0) & as_u32(Flags.CONGESTED << 16)
    if cell.seen != (as_u64(1) << as_u64(world.count)) - 1:
        return
    cell.done = 1
    copy(values, packet, PACKET_BYTES)
    store_be32(values, 0, (load_be32(values, 0) & 0xF0FFFFFF) | as_u32(_RESULT) | cell.congested)
    for at in range(as_u64(world.count)):
        put(world, world.places[at].down, values)


@kernel
def bring_down(world: World, worker: LinkedWorker) -> None:
    """Hand a worker the packets that have arrived."""
    while head_of(worker.down) <= world.now_ns:
        packet: Array[u8] = offset(worker.down.packets, (worker.down.first & (_PLACES - 1)) * _STRIDE)
        frame: Array[u8] = reserve(worker.far, _FRAME_BYTES)
        link: Array[u8] = worker.engine.link
        copy(frame, link, LINK_BYTES)
        store_be32(frame, 26, load_be32(link, 30))
        store_be32(frame, 30, load_be32(link, 26))
        store_be16(frame, 34, load_be16(link, 36))
        store_be16(frame, 36, load_be16(link, 34))
        copy(offset(frame, LINK_BYTES), packet, PACKET_BYTES)
        commit(worker.far, _FRAME_BYTES)
        worker.down.first += 1
    flush(worker.far)


@dataclass(frozen=True, slots=True)
class Network:
    """Links: all alike, both directions."""

    rate_bps: float = 1e9
    delay_s: float = 20e-6
    limit_s: float = 5e-3
    """A packet that would wait longer for its turn is dropped."""
    mark_s: float = 1.0
    """From this wait on packets are marked."""
    loss: float = 0.0
    overtaken: float = 0.0
    """Chance of each packet to change places with the eighth before it, if that has not arrived."""
    seed: int = 1
    late_s: float = 0.0
    """Worker n begins n times this late."""


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of a simulation."""

    time_s: float
    least_s: float
    """At the links' rate, with nothing lost."""
    sent: int
    """Contributions of all workers."""
    items: int
    """Results that each worker needs."""
    repeated: int
    useless: int
    """Repetitions that the switch already had and need not answer."""
    cuts: int
    undone: int
    """Cuts that were taken back."""
    stalls: int
    overflown: int
    lost: int
    window: float

    @property
    def share(self) -> float:
        """Share of the links' rate."""
        return self.least_s / self.time_s

    @property
    def more(self) -> float:
        """Contributions beyond one for each item and worker, as a share."""
        return self.repeated / (self.sent - self.repeated)


class Simulation:
    """Workers that persist from one all-reduce to the next."""

    def __init__(self, workers: int, window: int, network: Network, *, first_window: int = 16) -> None:
        self._network, self._workers = network, workers
        self._library = kernel_library(simulate)
        self._engines: list[Engine] = []
        self._ports: list[NicPort] = []
        self._kept: list[LinkedWorker] = []
        places = (LinkedWorker * workers)()
        for number in range(workers):
            settings = EngineSettings("10.0.0.254", JOB, window, workers, 1, patience_s=1e6, first_window=first_window)
            here, there = memory_pair(slots=1024, slot_bytes=2048)
            carried = RingTransport(there, NextHop("", IPv4Address(number + 1), 1, 2), 40000)
            engine = Engine(settings, carried)
            engine._state.own_clock = 1
            self._engines.append(engine)
            self._ports.append(here)
            kept = LinkedWorker(engine=engine._state, far=here.queues[0], up=_direction(), down=_direction())
            self._kept.append(kept)  # an element of an array keeps no reference to its targets
            places[number] = kept
        self._world = World(places=places, count=workers, cells=(Cell * (2 * window))(), mask=2 * window - 1)
        self._world.values = zeros(2 * window * _STRIDE)
        self._world.frames, self._world.lengths = zeros(8 * BURST), zeros(4 * BURST)
        self._world.now_ns = 1_000_000
        self._places = places

    def all_reduce(self, blocks: int) -> Run:
        """Run one all-reduce of this many blocks."""
        network, world = self._network, self._world
        wire_bytes = 24 + LINK_BYTES + PACKET_BYTES
        world.packet_ns = int(wire_bytes * 8e9 / network.rate_bps)
        world.delay_ns, world.limit_ns = int(network.delay_s * 1e9), int(network.limit_s * 1e9)
        world.mark_ns, world.loss = int(network.mark_s * 1e9), int(network.loss * 2**32)
        world.overtaken = int(network.overtaken * 2**32)
        world.seed = network.seed * 2**33 + 1
        values = np.random.default_rng(1).normal(size=256 * blocks).astype(np.float32)
        began = world.now_ns
        world.until_ns = began + 1_000_000_000_000
        before = [engine.statistics for engine in self._engines]
        targets = [np.zeros_like(values) for _ in self._engines]
        for number, (engine, target) in enumerate(zip(self._engines, targets, strict=True)):
            engine._begin(values, target, mean=False)
            engine._state.last_result_ns = engine._state.patient_from_ns = began
            worker = self._places[number]
            worker.finished_ns, worker.starts_ns = 0, began + int(number * network.late_s * 1e9)
        useless = world.repeated
        gone = [
            (worker.up.overflown, worker.up.lost, worker.down.overflown, worker.down.lost) for worker in self._places
        ]
        assert self._library.bind(simulate)(world)
        assert all(np.allclose(target, values, atol=1e-6) for target in targets)
        after = [engine.statistics for engine in self._engines]
        now = [
            (worker.up.overflown, worker.up.lost, worker.down.overflown, worker.down.lost) for worker in self._places
        ]
        changes = [tuple(b - a for a, b in zip(x, y, strict=True)) for x, y in zip(gone, now, strict=True)]
        items = after[0].results - before[0].results
        late_ns = (self._workers - 1) * network.late_s * 1e9
        return Run(
            time_s=(max(worker.finished_ns for worker in self._places) - began - late_ns) / 1e9,
            least_s=(items * world.packet_ns + 2 * world.delay_ns) / 1e9,
            sent=sum(b.sent - a.sent for a, b in zip(before, after, strict=True)),
            items=items,
            repeated=sum(b.repeated - a.repeated for a, b in zip(before, after, strict=True)),
            useless=world.repeated - useless,
            cuts=sum(b.cuts - a.cuts for a, b in zip(before, after, strict=True)),
            undone=sum(b.undone - a.undone for a, b in zip(before, after, strict=True)),
            stalls=sum(b.stalls - a.stalls for a, b in zip(before, after, strict=True)),
            overflown=sum(c[0] + c[2] for c in changes),
            lost=sum(c[1] + c[3] for c in changes),
            window=after[0].congestion_window,
        )

    def close(self) -> None:
        """Free the memory."""
        for engine, port in zip(self._engines, self._ports, strict=True):
            engine.close()
            port.close()


def _direction() -> Direction:
    return Direction(packets=zeros(_PLACES * _STRIDE), due=zeros(8 * _PLACES))
