"""Hops of reports as records for subscribers, of an even sample of all reports: `collectors.state.record_log`."""

from __future__ import annotations

from collectors.native.kernels.decode.hops import egress_of, ingress_of
from collectors.native.kernels.decode.identity import identity_of_stack
from collectors.native.structures import (
    HOP_BY_HOP,
    KEY_WORDS,
    NONE24,
    NONE32,
    QUEUE,
    STACK,
    Decoder,
    Hop,
    Packet,
    RecordCell,
)
from collectors.native.tables import TelemetryTables
from collectors.state.record_log import ALL, MIX, PERIOD_NS
from dataplane.clock import NS_PER_S
from dataplane.native import as_i64, as_u32, as_u64, kernel, u32, u64

FIRST, SECOND = MIX
SEQUENCE = 0x003F_FFFF
"""The bits of a report packet's number among those of its group header."""


@kernel(inline=False)
def note_records(tables: TelemetryTables, decoder: Decoder, packet: Packet) -> None:
    """Keep the hops of a packet whose report has just been taken, if it is chosen."""
    if packet.hop_count == 0 or packet.kind > QUEUE:
        return
    choice: u32 = choice_of(packet)
    if not takes(tables, choice, tables.batch.now_ns):
        return
    if tables.records.count + packet.hop_count > tables.records.room:
        tables.counts.records_withheld += 1
        return
    identity: u64 = packet.identity
    if packet.kind == STACK:
        identity = identity_of_stack(packet)
    count: u32 = NONE32
    index: u32 = 0
    if packet.kind == STACK and packet.missing == 0:
        count = packet.hop_count
    elif packet.kind == HOP_BY_HOP:
        # The hops of its packet, just joined.
        count = tables.pending.part[0].count
        index = tables.pending.part[0].position
    i: u32 = 0
    while i < packet.hop_count:
        hop = decoder.hops[as_u64(packet.first_hop + i)]
        if packet.route != NONE32 or hop.switch != NONE32:
            cell = tables.records.cells[as_u64(tables.records.count)]
            tables.records.count += 1
            put_packet(cell, packet, identity, tables.batch.now_ns, choice)
            cell.hop_index = index + i
            cell.hop_count = count
            put_hop(cell, hop)
        i += 1


@kernel(inline=True)
def put_packet(cell: RecordCell, packet: Packet, identity: u64, now_ns: u64, choice: u32) -> None:
    """Put what all hops of a report share into a cell."""
    i: u64 = 0
    while i < KEY_WORDS:
        cell.key[i] = packet.key[i]
        i += 1
    cell.received_ns = now_ns
    cell.packet_id = identity
    cell.reporter_id = packet.node_id
    cell.sequence = packet.sequence & SEQUENCE
    cell.kind = packet.kind
    cell.choice = choice


@kernel(inline=True)
def put_hop(cell: RecordCell, hop: Hop) -> None:
    """Put one hop's values into a cell."""
    cell.node_id = hop.node_id
    cell.ingress_port = ingress_of(hop)
    cell.egress_port = egress_of(hop)
    cell.hop_latency_ns = hop.latency_ns
    cell.queue = hop.queue
    cell.ingress_timestamp_ns = hop.arrived_ns
    cell.egress_timestamp_ns = hop.left_ns
    cell.tx_bytes_per_window = hop.tx_bytes
    cell.buffer = hop.buffer | ~as_u32(NONE24)


@kernel(inline=True)
def choice_of(packet: Packet) -> u32:
    """Return 32 bits that are equal in all hops of a packet."""
    if packet.kind == STACK:
        return mixed(as_u64(packet.node_id) << 32 | as_u64(packet.sequence & SEQUENCE))
    ends: u64 = packet.key[1] << 32 ^ packet.key[3]
    ports: u64 = packet.key[4] >> 16
    return mixed(packet.identity ^ ends ^ ports << 16)


@kernel(inline=True)
def mixed(number: u64) -> u32:
    """Return a 32-bit hash of a number: every bit of it changes the result."""
    once: u64 = number * FIRST
    return as_u32(((once ^ once >> 29) * SECOND) >> 32)


@kernel(inline=False)
def takes(tables: TelemetryTables, choice: u32, now_ns: u64) -> bool:
    """Return whether a report becomes records; count it otherwise."""
    records = tables.records
    if records.per_s == 0:
        return False
    follow(tables, now_ns)
    records.seen += 1
    if records.is_behind != 0:
        tables.counts.records_shed += 1
        return False
    records.full_ns = max(records.full_ns, now_ns)
    gap_ns: u64 = NS_PER_S // records.per_s
    if as_u64(choice) >= records.share or now_ns + NS_PER_S < records.full_ns + gap_ns:
        tables.counts.records_withheld += records.is_capped
        tables.counts.records_not_sampled += 1 - records.is_capped
        return False
    records.full_ns += gap_ns
    return True


@kernel(inline=True)
def follow(tables: TelemetryTables, now_ns: u64) -> None:
    """Adapt the sample's share to the number of reports, once a period."""
    records = tables.records
    elapsed_ns: u64 = now_ns - records.begun_ns
    if elapsed_ns < PERIOD_NS:
        return
    records.seen_per_s = 0
    if as_i64(elapsed_ns) > 0:
        records.seen_per_s = records.seen * NS_PER_S // elapsed_ns
    records.share = ALL
    if records.seen_per_s > records.per_s:
        records.share = (records.per_s << 32) // records.seen_per_s
    records.begun_ns = now_ns
    records.seen = 0


@kernel
def choose_record(tables: TelemetryTables, choice: u32, now_ns: u64) -> u32:
    """Return whether a report that Python has read becomes records: 1 or 0."""
    return 1 if takes(tables, choice, now_ns) else 0
