"""Exchange between workers and Python: frames through bounded rings, whose reader a bell wakes."""

from __future__ import annotations

import ctypes

from dataplane.native import (
    Array,
    Struct,
    address,
    kernel,
    pointer_to,
    reference,
    u64,
)
from dataplane.native.doorbell import Bell, ring
from dataplane.native.locks import lock, unlock
from dataplane.switch.abi import Packet


class PacketRing(Struct):
    """Packets' blocks on their way to another thread; `bell` wakes the reader."""

    lock: u64
    head: u64  # put in, ever
    tail: u64  # taken out, ever
    mask: u64  # number of slots - 1
    slots: Array[u64]
    bell: Bell


@kernel
def put(packets: PacketRing, packet: Packet) -> bool:
    """Hand a block over and return True, or return False if the ring is full."""
    lock(reference(packets.lock))
    fits = packets.head - packets.tail <= packets.mask
    if fits:
        packets.slots[packets.head & packets.mask] = address(packet)
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
        block = packets.slots[packets.tail & packets.mask]
        packets.tail += 1
    unlock(reference(packets.lock))
    return block


def make_ring(slots: int, bell: Bell) -> PacketRing:
    """Return an empty ring with that many slots, a power of two."""
    made = PacketRing()
    made.mask = slots - 1
    made.slots = pointer_to((ctypes.c_uint64 * slots)())
    made.bell = bell
    return made
