"""The compiler's functions for a P4 program, as declared to the kernels that call them.

A returned u32 is a `Reason` unless stated otherwise: 0 if the packet continues.
"""

from __future__ import annotations

from dataplane.native import Array, external, u8, u32, u64
from dataplane.switch.abi import Machine, Packet

NOT_ENOUGH_ROOM = 0xFFFF_FFFF
"""Returned by `p4_deparse` in place of a length; see NO_LENGTH."""
NO_LENGTH = 0xFFFF_FF00
"""From here on, `p4_deparse` returns no length: NOT_ENOUGH_ROOM, or a Reason in the low byte."""


@external
def p4_reset(machine: Machine, packet: Packet) -> None:
    """Reset the region to that of a new packet: metadata valid, everything zero."""
    raise NotImplementedError


@external
def p4_parse(machine: Machine, packet: Packet) -> u32:
    """Run the parser; sets `parsed` and `parser_error`."""
    raise NotImplementedError


@external
def p4_note_errors(machine: Machine, packet: Packet) -> None:
    """Pass the parser's error and wrong checksums to the program."""
    raise NotImplementedError


@external
def p4_ingress(machine: Machine, packet: Packet) -> u32:
    """Run the ingress pipeline."""
    raise NotImplementedError


@external
def p4_digest(machine: Machine, packet: Packet) -> None:
    """Send the digest that `packet.digest` names, or count it if the event ring is full."""
    raise NotImplementedError


@external
def p4_egress(machine: Machine, packet: Packet) -> u32:
    """Run the egress pipeline."""
    raise NotImplementedError


@external
def p4_deparse(machine: Machine, packet: Packet, out: Array[u8], capacity: u32) -> u32:
    """Write headers and payload to `out`; return the length, or a value from NO_LENGTH on, which gives the reason."""
    raise NotImplementedError


@external
def p4_emitted_bytes(machine: Machine, packet: Packet) -> u32:
    """Return the length of the headers that the deparser would write."""
    raise NotImplementedError


@external
def p4_keep(machine: Machine, source: Packet, target: Packet, field_list: u32, instance_type: u32) -> None:
    """Reset the target's metadata, except for the fields of a list, which come from the source."""
    raise NotImplementedError


@external
def p4_copy(machine: Machine, source: Packet, target: Packet) -> None:
    """Copy the region."""
    raise NotImplementedError


@external
def p4_set_ingress_port(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_egress_port(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_egress_spec(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_packet_length(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_instance_type(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_egress_rid(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_ingress_global_timestamp(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_egress_global_timestamp(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_enq_timestamp(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_enq_qdepth(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_deq_timedelta(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_deq_qdepth(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_set_qid(machine: Machine, packet: Packet, value: u64) -> None:
    """Set the field of that name, if the program has one."""
    raise NotImplementedError


@external
def p4_get_egress_spec(machine: Machine, packet: Packet) -> u64:
    """Return the field of that name, or 0 if the program has none."""
    raise NotImplementedError


@external
def p4_get_mcast_grp(machine: Machine, packet: Packet) -> u64:
    """Return the field of that name, or 0 if the program has none."""
    raise NotImplementedError


@external
def p4_get_instance_type(machine: Machine, packet: Packet) -> u64:
    """Return the field of that name."""
    raise NotImplementedError


@external
def p4_get_priority(machine: Machine, packet: Packet) -> u64:
    """Return the field of that name, or 0 if the program has none."""
    raise NotImplementedError
