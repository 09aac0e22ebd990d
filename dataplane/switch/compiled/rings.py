"""What workers and Python hand each other: frames through bounded rings, and a bell that wakes whoever sleeps."""

from __future__ import annotations

import ctypes

from dataplane.native import (
    Array,
    Struct,
    address,
    exchange,
    external,
    i32,
    i64,
    kernel,
    pointer_to,
    reference,
    stack_array,
    u64,
)
from dataplane.native.spinlock import lock, unlock
from dataplane.switch.abi import Packet


class Bell(Struct):
    """An eventfd that is written once for all that happens until its reader has heard it."""

    rung: u64
    fd: i32
    spare: i32


class PacketRing(Struct):
    """Packets' blocks on their way to another thread; the reader hears `bell`."""

    lock: u64
    head: u64  # put in, ever
    tail: u64  # taken out, ever
    mask: u64  # places, less one
    places: Array[u64]
    bell: Bell


@external
def write(fd: i32, words: Array[u64], nbytes: u64) -> i64:
    """Write to a descriptor (write(2))."""
    raise NotImplementedError


@external
def read(fd: i32, words: Array[u64], nbytes: u64) -> i64:
    """Read from a descriptor (read(2))."""
    raise NotImplementedError


@kernel
def ring(bell: Bell) -> None:
    """Wake the bell's reader, unless it has been woken already."""
    if exchange(bell.rung, 1) == 0:
        one = stack_array(u64, 1)
        one[0] = 1
        write(bell.fd, one, 8)


@kernel
def hear(bell: Bell) -> None:
    """Make the bell silent; what happens from now on rings it again, and is seen by who looks from now on.

    Who rang may not have written yet: the reader is then woken once more for nothing, and hears that, too.
    """
    count = stack_array(u64, 1)
    read(bell.fd, count, 8)
    exchange(bell.rung, 0)


@kernel
def put(packets: PacketRing, packet: Packet) -> bool:
    """Hand a block over and return True, or return False if the ring is full."""
    lock(reference(packets.lock))
    fits = packets.head - packets.tail <= packets.mask
    if fits:
        packets.places[packets.head & packets.mask] = address(packet)
        packets.head += 1
    unlock(reference(packets.lock))
    if fits:
        ring(packets.bell)
    return fits


@kernel
def get(packets: PacketRing) -> u64:
    """Return the address of the oldest block, or 0 if there is none."""
    block: u64 = 0
    lock(reference(packets.lock))
    if packets.head != packets.tail:
        block = packets.places[packets.tail & packets.mask]
        packets.tail += 1
    unlock(reference(packets.lock))
    return block


def make_ring(places: int, bell: Bell) -> PacketRing:
    """Return an empty ring of so many places, a power of two."""
    made = PacketRing()
    made.mask = places - 1
    made.places = pointer_to((ctypes.c_uint64 * places)())
    made.bell = bell
    return made
