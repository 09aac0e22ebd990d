"""A driver thread played by tests: hands out frames in bursts and sends producers' queued packets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dataplane.native import kernel_library
from dataplane.nic.buffers.kernels.transmitting import has_to_transmit, transmit
from dataplane.nic.buffers.software_queue import Memory, ReceiveQueue
from dataplane.nic.manager.kernels.distribute import distribute, publish
from dataplane.nic.manager.packet_manager import PacketManager
from dataplane.nic.ports.queue import PortQueue
from dataplane.nic.structures import Buffer, Stamp, StampKind, Verdict


@dataclass(frozen=True, slots=True)
class Kernels:
    distribute: Callable[..., bool]
    publish: Callable[..., None]
    transmit: Callable[..., int]
    has_to_transmit: Callable[..., bool]


@functools.cache
def kernels() -> Kernels:
    library = kernel_library(distribute, publish, transmit, has_to_transmit)
    return Kernels(
        library.bind(distribute), library.bind(publish), library.bind(transmit), library.bind(has_to_transmit)
    )


class Driver:
    """One driver thread of a packet manager; `epoch` is odd inside a burst."""

    def __init__(self, manager: PacketManager, number: int = 0) -> None:
        self.thread = manager.threads[number]
        self.number = number
        self.epoch = 0

    def begin(self) -> None:
        self.epoch += 1

    def end(self) -> None:
        kernels().publish(self.thread)
        self.epoch += 1

    @contextmanager
    def burst(self) -> Iterator[None]:
        self.begin()
        yield
        self.end()

    def hand(
        self, frame: bytes, *, group: int = 0, flow: int = 0, mark: int = 0, rule: int = 0, stamp: Stamp | None = None
    ) -> bool:
        verdict = Verdict(group=group, flow_hash=flow, mark=mark, rule=rule)
        when = stamp or Stamp(time_ns=0, kind=StampKind.SOFTWARE, queue=self.number)
        return kernels().distribute(self.thread, verdict, frame, len(frame), when)

    def give(self, *frames: bytes, group: int = 0, flow: int = 0) -> list[bool]:
        """Hand frames out in a burst of their own."""
        with self.burst():
            return [self.hand(frame, group=group, flow=flow) for frame in frames]

    def transmit(self, queue: PortQueue, limit: int = 64) -> int:
        """Send, in the current burst or a new one."""
        if self.epoch % 2 == 1:
            return kernels().transmit(self.thread, queue, limit)
        with self.burst():
            return kernels().transmit(self.thread, queue, limit)

    def has_to_transmit(self) -> bool:
        return kernels().has_to_transmit(self.thread)


def free_addresses(memory: Memory) -> list[int]:
    """Return the addresses of the free buffers."""
    free = []
    for number in range(memory.classes):
        reserve = memory.reserves[number]
        ring = reserve.returned[0]
        free += [reserve.stack[index] for index in range(reserve.count)]
        free += [ring.slots[position & ring.mask] for position in range(ring.head, ring.tail)]
    return free


def chain(address: int) -> list[int]:
    """Return the addresses of a packet's buffers."""
    addresses = []
    while address:
        addresses.append(address)
        address = Buffer.from_address(address).next
    return addresses


def waiting_addresses(queue: ReceiveQueue) -> list[int]:
    """Return the addresses of the buffers of packets not yet taken."""
    ring = queue.packets[0]
    return [address for position in range(ring.head, queue.put) for address in chain(ring.slots[position & ring.mask])]


def buffer_count(memory: Memory) -> int:
    return sum(memory.reserves[number].buffers for number in range(memory.classes))
