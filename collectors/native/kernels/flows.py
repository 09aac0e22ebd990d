"""The table of flows: cells found through an index by open addressing; where it is full, one of the oldest goes.

Which one: of the next few cells in turn the one that was touched longest ago; exact for a table of no more than those.
"""

from __future__ import annotations

from collectors.native.structures import KEY_WORDS, NONE32, NONE64, RATE_SLOTS, Fabric, FlowCell
from dataplane.native import Array, as_i64, as_u32, as_u64, i64, kernel, offset, prefetch, reference, u32, u64
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry, remove_entry

CANDIDATES = 16
FRAMING_BYTES = 38
"""`collectors.statistics.rate.FRAMING_BYTES`."""
_FIRST = 0x9E37_79B9_7F4A_7C15
_SECOND = 0xD6E8_FEB8_6659_FD93
_THIRD = 0xA076_1D64_78BD_642F


@kernel(inline=True)
def hash_key(key: Array[u64]) -> u64:
    """Return the hash of a flow's key."""
    mixed: u64 = (key[1] ^ (key[0] * _THIRD)) * _FIRST
    mixed = (mixed ^ (mixed >> 29) ^ key[3] ^ (key[2] * _THIRD)) * _SECOND
    mixed = (mixed ^ (mixed >> 31) ^ key[4]) * _FIRST
    return mixed ^ (mixed >> 32)


@kernel(inline=True)
def prefetch_index(fabric: Fabric, mixed: u64) -> None:
    """Begin to bring a flow's place in the index into the cache."""
    prefetch(offset(fabric.flow_index, home_of(mixed, fabric.flow_mask)))


@kernel(inline=True)
def prefetch_flow(fabric: Fabric, mixed: u64) -> None:
    """Begin to bring the cell into the cache that the index most likely leads to."""
    found: u64 = fabric.flow_index[home_of(mixed, fabric.flow_mask)] & LOW32
    if found != 0:
        cell = fabric.flows[found - 1]
        prefetch(reference(cell.heard_ns))
        prefetch(reference(cell.first_ns))


@kernel(inline=True)
def same_key(cell: FlowCell, key: Array[u64]) -> bool:
    """Return whether a cell is of a key."""
    apart: u64 = (cell.key[0] ^ key[0]) | (cell.key[1] ^ key[1]) | (cell.key[2] ^ key[2]) | (cell.key[3] ^ key[3])
    return (apart | (cell.key[4] ^ key[4])) == 0


@kernel(inline=True)
def touch_flow(fabric: Fabric, key: Array[u64], mixed: u64, now_ns: u64) -> FlowCell:
    """Return a flow's cell, heard of now; a new one, where it was unheard of for long, has neither path nor rate."""
    fabric.touches += 1
    place: u64 = next_alike(fabric.flow_index, fabric.flow_mask, home_of(mixed, fabric.flow_mask), mixed)
    while fabric.flow_index[place] != 0:
        cell = fabric.flows[(fabric.flow_index[place] & LOW32) - 1]
        if same_key(cell, key):
            if now_ns > cell.heard_ns + fabric.forget_ns:
                forget(cell)
            cell.heard_ns = max(cell.heard_ns, now_ns)
            cell.touched = as_u32(fabric.touches)
            return cell
        place = next_alike(fabric.flow_index, fabric.flow_mask, (place + 1) & fabric.flow_mask, mixed)
    return add_flow(fabric, key, mixed, now_ns)


@kernel(inline=True)
def forget(cell: FlowCell) -> None:
    """Leave nothing of a flow but its key."""
    cell.path_ns = 0
    cell.source_ns = NONE64
    cell.route = NONE32
    cell.source_host = NONE32
    cell.target_host = NONE32
    cell.first_ns = NONE64
    cell.rate_ns = 0
    i: u64 = 0
    while i < RATE_SLOTS:
        cell.rate_bytes[i] = 0
        i += 1


@kernel(inline=False)
def add_flow(fabric: Fabric, key: Array[u64], mixed: u64, now_ns: u64) -> FlowCell:
    """Make a cell for a flow, or make one free."""
    number: u64 = fabric.flow_count
    if number == fabric.flow_most:
        number = make_room(fabric, now_ns)
    else:
        fabric.flow_count += 1
    cell = fabric.flows[number]
    i: u64 = 0
    while i < KEY_WORDS:
        cell.key[i] = key[i]
        i += 1
    forget(cell)
    cell.heard_ns = now_ns
    cell.touched = as_u32(fabric.touches)
    put_entry(fabric.flow_index, fabric.flow_mask, mixed, number + 1)
    return cell


@kernel(inline=False)
def make_room(fabric: Fabric, now_ns: u64) -> u64:
    """Take the flow that was unheard of for longest, of the next few in turn, out of the index; return its cell."""
    chosen: u64 = fabric.hand
    left: u64 = min(CANDIDATES, fabric.flow_count)
    while left > 0:
        # Of two ages the greater: the counter wraps.
        age: u32 = as_u32(fabric.touches) - fabric.flows[fabric.hand].touched
        if age > as_u32(fabric.touches) - fabric.flows[chosen].touched:
            chosen = fabric.hand
        fabric.hand = 0 if fabric.hand + 1 == fabric.flow_count else fabric.hand + 1
        left -= 1
    cell = fabric.flows[chosen]
    if now_ns <= cell.heard_ns + fabric.forget_ns:
        fabric.flows_forgotten += 1
    remove_entry(fabric.flow_index, fabric.flow_mask, hash_key(reference(cell.key[0])), chosen + 1)
    return chosen


@kernel(inline=True)
def count_packet(fabric: Fabric, cell: FlowCell, ip_bytes: u64, source_ns: u64) -> None:
    """Count a measured packet of a flow in its rate, by when it was sent (`collectors.statistics.rate`)."""
    at_ns: u64 = fabric.now_ns
    if cell.first_ns == NONE64:
        cell.first_ns = fabric.now_ns
        cell.rate_ns = fabric.now_ns
    elif source_ns != NONE64 and cell.source_ns != NONE64:  # noqa: PLR1714 - kernels have no `in`
        at_ns = sent_ns(fabric, cell, as_i64(source_ns - cell.source_ns))
    newest: u64 = cell.rate_ns // fabric.rate_slot_ns
    number: u64 = at_ns // fabric.rate_slot_ns
    if at_ns > cell.rate_ns:
        cell.rate_ns = at_ns
        if number != newest:
            step_slots(cell, newest, number)
    elif number + RATE_SLOTS <= newest:
        return
    place: u64 = number & (RATE_SLOTS - 1)
    total: u64 = as_u64(cell.rate_bytes[place]) + ip_bytes + FRAMING_BYTES
    cell.rate_bytes[place] = as_u32(min(total, LOW32))


@kernel(inline=True)
def sent_ns(fabric: Fabric, cell: FlowCell, between_ns: i64) -> u64:
    """Return when a packet was sent whose stamp is so much after that of the flow's path; now, if that cannot be."""
    off_ns: i64 = between_ns - as_i64(fabric.now_ns - cell.path_ns)
    lead_ns: i64 = as_i64(fabric.rate_lead_ns)
    if off_ns > lead_ns or off_ns < -lead_ns:
        return fabric.now_ns
    at_ns: i64 = max(as_i64(cell.rate_ns) + between_ns, 0)
    return as_u64(at_ns) if at_ns <= as_i64(fabric.now_ns) + lead_ns else fabric.now_ns


@kernel(inline=False)
def step_slots(cell: FlowCell, newest: u64, number: u64) -> None:
    """Empty the slots of the rate that begin anew."""
    steps: u64 = min(number - newest, RATE_SLOTS)
    while steps > 0:
        steps -= 1
        cell.rate_bytes[(number - steps) & (RATE_SLOTS - 1)] = 0


@kernel
def take_packet(fabric: Fabric, key: Array[u64], ip_bytes: u64, source_ns: u64) -> None:
    """Take note of a measured packet of a flow."""
    count_packet(fabric, touch_flow(fabric, key, hash_key(key), fabric.now_ns), ip_bytes, source_ns)


@kernel
def hash_of(key: Array[u64]) -> u64:
    """Return the hash of a key, for tests."""
    return hash_key(key)
