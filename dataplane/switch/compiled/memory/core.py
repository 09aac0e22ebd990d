"""A thread's working state for taking packets through a program, and the steps that all paths share."""

from __future__ import annotations

from typing import Literal

from dataplane.native import Inline, Struct, address, as_u32, as_u64, copy, kernel, offset, u32, u64, view
from dataplane.switch.abi import UNLIMITED, Machine, Packet, Reason
from dataplane.switch.compiled.generated import p4_copy, p4_set_packet_length
from dataplane.switch.compiled.memory.pool import Cache, give, take
from dataplane.switch.v1model import PRIORITIES


class Core(Struct):
    """One thread's machine and blocks, and its packets for the traffic manager, linked by `next`.

    `frames` are blocks that hold deparsed frames: they outlive the program that made them.
    """

    machine: Machine
    packets: Inline[Cache, Literal[1]]
    frames: Inline[Cache, Literal[1]]
    placed_first: u64
    placed_last: u64
    refused_first: u64  # packets refused by full queues, to be deflected, linked by `next`, in any order
    no_error: u32  # the code of NoError
    other_errors: u32  # index of the counter for parser errors of unknown codes
    copies: u64  # packets created here: clones and replicas, less dropped ones


@kernel(inline=True)
def count(core: Core, reason: u32) -> None:
    """Count a packet that ends for this reason, or a copy that could not be made."""
    core.machine.drops[reason] += 1


@kernel
def drop(core: Core, packet: Packet, reason: u32) -> None:
    """Count a packet and release its block."""
    count(core, reason)
    give(core.packets[0], packet)


@kernel(inline=True)
def clear_registers(packet: Packet) -> None:
    """Reset the registers that a copy does not inherit."""
    packet.clone_session = 0
    packet.clone_list = 0
    packet.resubmit = 0
    packet.recirculate = 0
    packet.digest = 0
    packet.exit = 0
    packet.truncate = UNLIMITED


@kernel(inline=True)
def set_length(core: Core, packet: Packet, length: u32) -> None:
    """Record the packet's length for switch and program."""
    packet.packet_length = length
    p4_set_packet_length(core.machine, packet, as_u64(length))


@kernel
def place(core: Core, packet: Packet, port: u32, priority: u64) -> None:
    """Hand a packet to the traffic manager."""
    if priority >= PRIORITIES:
        drop(core, packet, Reason.PRIORITY_OUT_OF_RANGE)
        return
    packet.egress_port = port
    packet.priority = as_u32(priority)
    packet.refused_depth = 0
    packet.next = 0
    if core.placed_first == 0:
        core.placed_first = address(packet)
    else:
        view(Packet, core.placed_last).next = address(packet)
    core.placed_last = address(packet)


@kernel
def duplicate(core: Core, packet: Packet) -> u64:
    """Return the address of a copy of headers, metadata and payload, or 0 (counted) if no block is free."""
    core.copies += 1
    block = take(core.packets[0])
    if block == 0:
        count(core, Reason.NO_BUFFER)
        return 0
    twin = view(Packet, block)
    twin.length = packet.length
    twin.parsed = packet.parsed
    twin.port = packet.port
    twin.parser_error = packet.parser_error
    twin.packet_length = packet.packet_length
    twin.ingress_length = packet.ingress_length
    clear_registers(twin)
    p4_copy(core.machine, packet, twin)
    if packet.length > packet.parsed:
        parsed = packet.parsed
        copy(offset(twin.data, parsed), offset(packet.data, parsed), as_u64(packet.length - parsed))
    return block
