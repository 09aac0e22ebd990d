"""The table of flows: cells found through an index by open addressing; where it is full, one of the oldest goes.

Which one: of the next few cells in turn the one that was touched longest ago; exact for a table of no more than those.
"""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key, same_key
from collectors.native.structures import KEY_WORDS, NONE32, NONE64, RATE_SLOTS, FlowCell
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, as_i64, as_u32, as_u64, i64, kernel, offset, prefetch, reference, u32, u64, view
from dataplane.native.open_addressing import LOW32, home_of, next_alike, put_entry, remove_entry

CANDIDATES = 16
FRAMING_BYTES = 38
"""`collectors.statistics.rate.FRAMING_BYTES`."""


@kernel(inline=True)
def prefetch_index(tables: TelemetryTables, mixed: u64) -> None:
    """Prefetch a flow's slot of the index."""
    prefetch(offset(tables.flows.index, home_of(mixed, tables.flows.mask)))


@kernel(inline=True)
def prefetch_flow(tables: TelemetryTables, mixed: u64) -> None:
    """Prefetch the cell that the index most likely leads to."""
    found: u64 = tables.flows.index[home_of(mixed, tables.flows.mask)] & LOW32
    if found != 0:
        cell = tables.flows.cells[found - 1]
        prefetch(reference(cell.heard_ns))
        prefetch(reference(cell.first_ns))


@kernel(inline=True)
def find_flow(tables: TelemetryTables, key: Array[u64], mixed: u64) -> FlowCell:
    """Return a flow's cell as it is, or null."""
    flows = tables.flows
    slot: u64 = home_of(mixed, flows.mask)
    while True:
        slot = next_alike(flows.index, flows.mask, slot, mixed)
        number: u64 = flows.index[slot] & LOW32
        if number == 0:
            return view(FlowCell, 0)
        cell = flows.cells[number - 1]
        if same_key(cell, key):
            return cell
        slot = (slot + 1) & flows.mask


@kernel(inline=True)
def touch_flow(tables: TelemetryTables, key: Array[u64], mixed: u64, now_ns: u64) -> FlowCell:
    """Return a flow's cell, heard of now; a new one, where it was unheard of for long, has neither path nor rate."""
    tables.flows.touches += 1
    flows = tables.flows
    slot: u64 = home_of(mixed, flows.mask)
    while True:
        slot = next_alike(flows.index, flows.mask, slot, mixed)
        number: u64 = flows.index[slot] & LOW32
        if number == 0:
            return add_flow(tables, key, mixed, now_ns)
        cell = flows.cells[number - 1]
        if same_key(cell, key):
            if now_ns > cell.heard_ns + tables.limits.forget_ns:
                forget(cell)
            cell.heard_ns = max(cell.heard_ns, now_ns)
            cell.touched = as_u32(flows.touches)
            return cell
        slot = (slot + 1) & flows.mask


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
def add_flow(tables: TelemetryTables, key: Array[u64], mixed: u64, now_ns: u64) -> FlowCell:
    """Make a cell for a flow, or make one free."""
    number: u64 = tables.flows.count
    if number == tables.flows.most:
        number = make_room(tables, now_ns)
    else:
        tables.flows.count += 1
    cell = tables.flows.cells[number]
    i: u64 = 0
    while i < KEY_WORDS:
        cell.key[i] = key[i]
        i += 1
    forget(cell)
    cell.heard_ns = now_ns
    cell.touched = as_u32(tables.flows.touches)
    put_entry(tables.flows.index, tables.flows.mask, mixed, number + 1)
    return cell


@kernel(inline=False)
def make_room(tables: TelemetryTables, now_ns: u64) -> u64:
    """Take the flow that was unheard of for longest, of the next few in turn, out of the index; return its cell."""
    chosen: u64 = tables.flows.hand
    left: u64 = min(CANDIDATES, tables.flows.count)
    while left > 0:
        # Of two ages the greater: the counter wraps.
        age: u32 = as_u32(tables.flows.touches) - tables.flows.cells[tables.flows.hand].touched
        if age > as_u32(tables.flows.touches) - tables.flows.cells[chosen].touched:
            chosen = tables.flows.hand
        tables.flows.hand = 0 if tables.flows.hand + 1 == tables.flows.count else tables.flows.hand + 1
        left -= 1
    cell = tables.flows.cells[chosen]
    if now_ns <= cell.heard_ns + tables.limits.forget_ns:
        tables.counts.flows_forgotten += 1
    remove_entry(tables.flows.index, tables.flows.mask, hash_key(reference(cell.key[0])), chosen + 1)
    return chosen


@kernel(inline=True)
def count_packet(tables: TelemetryTables, cell: FlowCell, ip_bytes: u64, source_ns: u64) -> None:
    """Count a measured packet of a flow in its rate, by when it was sent (`collectors.statistics.rate`)."""
    at_ns: u64 = tables.batch.now_ns
    if cell.first_ns == NONE64:
        cell.first_ns = tables.batch.now_ns
        cell.rate_ns = tables.batch.now_ns
    elif source_ns != NONE64 and cell.source_ns != NONE64:  # noqa: PLR1714 - kernels have no `in`
        at_ns = sent_ns(tables, cell, as_i64(source_ns - cell.source_ns))
    newest: u64 = rate_slot_at(tables, cell.rate_ns)
    number: u64 = rate_slot_at(tables, at_ns)
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
def rate_slot_at(tables: TelemetryTables, at_ns: u64) -> u64:
    """Return the number of a time's slot of a rate, without a division where it is the slot of the time before."""
    if at_ns - tables.flows.slot_begins_ns >= tables.flows.rate_slot_ns:  # wraps for those before
        find_rate_slot(tables, at_ns)
    return tables.flows.slot


@kernel(inline=False)
def find_rate_slot(tables: TelemetryTables, at_ns: u64) -> None:
    """Find a time's slot of a rate, for those that follow, too."""
    tables.flows.slot = at_ns // tables.flows.rate_slot_ns
    tables.flows.slot_begins_ns = tables.flows.slot * tables.flows.rate_slot_ns


@kernel(inline=True)
def sent_ns(tables: TelemetryTables, cell: FlowCell, between_ns: i64) -> u64:
    """Return when a packet was sent whose stamp is so much after that of the flow's path; now, if that cannot be."""
    off_ns: i64 = between_ns - as_i64(tables.batch.now_ns - cell.path_ns)
    lead_ns: i64 = as_i64(tables.flows.rate_lead_ns)
    if off_ns > lead_ns or off_ns < -lead_ns:
        return tables.batch.now_ns
    at_ns: i64 = max(as_i64(cell.rate_ns) + between_ns, 0)
    return as_u64(at_ns) if at_ns <= as_i64(tables.batch.now_ns) + lead_ns else tables.batch.now_ns


@kernel(inline=False)
def step_slots(cell: FlowCell, newest: u64, number: u64) -> None:
    """Empty the slots of the rate that begin again."""
    steps: u64 = min(number - newest, RATE_SLOTS)
    while steps > 0:
        steps -= 1
        cell.rate_bytes[(number - steps) & (RATE_SLOTS - 1)] = 0


@kernel
def take_packet(tables: TelemetryTables, key: Array[u64], ip_bytes: u64, source_ns: u64) -> None:
    """Take note of a measured packet of a flow."""
    count_packet(tables, touch_flow(tables, key, hash_key(key), tables.batch.now_ns), ip_bytes, source_ns)
