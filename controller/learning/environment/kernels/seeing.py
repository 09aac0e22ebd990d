"""Observation at a decision, written as float32 bits, and the obstacles to running the task on each node."""

from __future__ import annotations

from typing import Final

from controller.learning.environment.kernels.keeping import evictable_bytes, is_way, way
from controller.learning.environment.kernels.planning import foretold_ns, plan
from controller.learning.environment.kernels.structures import END, FETCHED, NONE, SERVED, START, PoolState
from controller.learning.environment.model import LOAD_BITS, LOAD_UNIT_NS, QUEUE_BITS
from dataplane.native import as_i64, as_u8, as_u32, as_u64, count_leading_zeros, i64, kernel, u32, u64

SHARE_BITS: Final = 16
ONE_BITS: Final = 0x3F80_0000
"""The bits of 1.0."""
NO_ENGINE: Final = 1
NO_DATA: Final = 2
NO_ROOM: Final = 3


@kernel(inline=True)
def share_bits(part: i64, whole: i64) -> u32:
    """Return the bits of part / whole, in units of 1 / 65536; both are below 2^47."""
    share: u64 = (as_u64(part) << SHARE_BITS) // as_u64(whole)
    if share == 0:
        return as_u32(0)
    high: u64 = 63 - count_leading_zeros(share)
    return as_u32(((high + 111) << 23) | ((share << (23 - high)) & 0x7F_FFFF))


@kernel(inline=True)
def look(pool: PoolState) -> i64:
    """Write the observation of the task; return 0, or without a candidate the reason of the nearest node."""
    actions: i64 = pool.nodes.actions
    pool.row[0] = share_bits(pool.running, pool.slots)
    start: i64 = 3 * pool.task
    pool.row[1] = pool.tasks.features[start]
    pool.row[2] = pool.tasks.features[start + 1]
    pool.row[3] = pool.tasks.features[start + 2]
    nearest: i64 = 0
    is_possible: bool = False
    for action in range(actions):
        obstacle: i64 = look_at(pool, action)
        pool.candidates[action] = as_u8(1) if obstacle == 0 else as_u8(0)
        if pool.load_start != 0:
            look_at_load(pool, action, obstacle)
        pool.row[4 + action] = share_bits(pool.nodes.free_bytes[action], pool.nodes.capacity_bytes[action])
        is_possible = is_possible or obstacle == 0
        nearest = max(nearest, obstacle)
    return 0 if is_possible else nearest


@kernel(inline=True)
def look_at(pool: PoolState, action: i64) -> i64:
    """Write the figures of one node; return why the task cannot run there, 0 if it can."""
    task: i64 = pool.task
    local_bytes: i64 = 0
    needed_bytes: i64 = 0
    delay: u32 = 0
    bandwidth: u32 = ONE_BITS
    has_data: bool = True
    for access in range(pool.tasks.access_start[task], pool.tasks.access_start[task + 1]):
        number: i64 = pool.tasks.access_object[access]
        store: i64 = pool.objects.place[number]
        src: i64 = NONE
        if store != NONE:
            src = pool.stores.node[store]
        if src == action:
            local_bytes += pool.objects.nbytes[number]
        if store == NONE or store != pool.nodes.fast[action]:
            needed_bytes += pool.objects.nbytes[number]
        if pool.tasks.access_is_write[access] == 0:
            if src == NONE or not is_way(pool, src, action):
                has_data = False
            if src == NONE or (src != action and not is_way(pool, src, action)):
                delay = ONE_BITS
                bandwidth = 0
            elif src != action:
                delay = max(delay, pool.ways.delay_feature[way(pool, src, action)])
                bandwidth = min(bandwidth, pool.ways.bandwidth_feature[way(pool, src, action)])
    write_features(pool, action, local_bytes, delay, bandwidth)
    if pool.nodes.is_there[action] == 0 or pool.nodes.kinds[action] & pool.tasks.kinds[task] == 0:
        return NO_ENGINE
    if not has_data:
        return NO_DATA
    room_bytes: i64 = pool.nodes.free_bytes[action]
    if room_bytes < needed_bytes:
        room_bytes += evictable_bytes(pool, action, task)
    return 0 if room_bytes >= needed_bytes else NO_ROOM


@kernel(inline=True)
def write_features(pool: PoolState, action: i64, local_bytes: i64, delay: u32, bandwidth: u32) -> None:
    """Write the part of the task's data that is local to a node, and the way to the rest."""
    actions: i64 = pool.nodes.actions
    total_bytes: i64 = max(pool.tasks.data_bytes[pool.task], 1)
    pool.row[4 + actions + action] = share_bits(local_bytes, total_bytes)
    if pool.has_network != 0:
        pool.row[4 + 2 * actions + action] = delay
        pool.row[4 + 3 * actions + action] = bandwidth


@kernel(inline=True)
def look_at_load(pool: PoolState, action: i64, obstacle: i64) -> None:
    """Write queued, wait, compute, arriving, leaving, fetching, evicting, cost of a node; 1 for impossible figures."""
    count: i64 = pool.nodes.actions
    start: i64 = pool.load_start + action
    queued: i64 = 0
    slots: i64 = 0
    for engine in range(pool.nodes.engine_start[action], pool.nodes.engine_start[action + 1]):
        queued += pool.engines.assigned[engine]
        slots += pool.engines.slots[engine]
    pool.row[start] = logarithm_bits(LOAD_UNIT_NS * queued // slots, QUEUE_BITS)
    pool.row[start + 3 * count] = logarithm_bits(pool.nodes.in_free_ns[action] - pool.now_ns, LOAD_BITS)
    pool.row[start + 4 * count] = logarithm_bits(pool.nodes.out_free_ns[action] - pool.now_ns, LOAD_BITS)
    if obstacle == 0:
        plan(pool, action)
        pool.row[start + count] = logarithm_bits(pool.plan[START] - pool.now_ns, LOAD_BITS)
        pool.row[start + 2 * count] = logarithm_bits(pool.plan[END] - pool.plan[SERVED], LOAD_BITS)
        pool.row[start + 5 * count] = logarithm_bits(pool.plan[FETCHED] - pool.now_ns, LOAD_BITS)
        pool.row[start + 6 * count] = logarithm_bits(
            missing_bytes(pool, action) - pool.nodes.free_bytes[action], LOAD_BITS
        )
        if pool.has_foretold != 0:
            pool.row[start + 7 * count] = logarithm_bits(foretold_ns(pool, action), LOAD_BITS)
    else:
        pool.row[start + count] = ONE_BITS
        pool.row[start + 2 * count] = ONE_BITS
        pool.row[start + 5 * count] = ONE_BITS
        pool.row[start + 6 * count] = ONE_BITS
        if pool.has_foretold != 0:
            pool.row[start + 7 * count] = ONE_BITS


@kernel(inline=True)
def missing_bytes(pool: PoolState, action: i64) -> i64:
    """Return how much of the task's data is missing from a node's fast memory."""
    nbytes: i64 = 0
    for access in range(pool.tasks.access_start[pool.task], pool.tasks.access_start[pool.task + 1]):
        number: i64 = pool.tasks.access_object[access]
        if pool.objects.place[number] != pool.nodes.fast[action]:
            nbytes += pool.objects.nbytes[number]
    return nbytes


@kernel(inline=True)
def logarithm_bits(figure: i64, bits: i64) -> u32:
    """Return the bits of log2(1 + figure / unit) over `bits`, straight between powers of two; 0 below 0, 1 at most."""
    units: u64 = as_u64(LOAD_UNIT_NS + max(figure, 0))
    high: u64 = 63 - count_leading_zeros(units)
    # The unit, 1024, is of ten bits more than 1. Shifting by 63 in all leaves the bits behind the first one.
    part: u64 = (units << (63 - high) << 1) >> (64 - SHARE_BITS)
    log: i64 = as_i64(((high - 10) << SHARE_BITS) + part)
    most: i64 = bits << SHARE_BITS
    return share_bits(min(log, most), most)
