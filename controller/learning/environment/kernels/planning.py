"""Predict how long a task would take on a node; only scratch memory changes."""

from __future__ import annotations

from controller.learning.environment.kernels.keeping import is_way, way
from controller.learning.environment.kernels.structures import (
    END,
    ENGINE,
    FETCHED,
    IN_FREE,
    NONE,
    SERVED,
    SLOT,
    START,
    PoolState,
)
from controller.learning.environment.model import BACKLOG_UNIT_NS, MOST_BACKLOG_NS, MOST_LEFT, PRICE_BITS
from controller.scheduling.simulation.kernels.sharing import sending_ns
from dataplane.native import i64, kernel


@kernel
def plan(pool: PoolState, action: i64) -> None:
    """Write the task's predicted run on a node into `plan`, and until when ports then send data into `planned_ns`."""
    nodes = pool.nodes
    for node in range(nodes.count):
        nodes.planned_ns[node] = nodes.out_free_ns[node]
    pool.plan[IN_FREE] = nodes.in_free_ns[action]
    fetched_ns: i64 = pool.now_ns
    access_ns: i64 = 0
    start: i64 = pool.tasks.access_start[pool.task]
    for access in range(start, pool.tasks.access_start[pool.task + 1]):
        number: i64 = pool.tasks.access_object[access]
        is_write: bool = pool.tasks.access_is_write[access] != 0
        access_ns += local_ns(pool, nodes.fast[action], number, is_write)
        if not is_write:
            if pool.objects.place[number] != nodes.fast[action]:
                fetch(pool, action, number, access - start)
                fetched_ns = max(fetched_ns, pool.tasks.reaches_ns[access - start])
            else:
                fetched_ns = max(fetched_ns, pool.objects.arrives_ns[number])
    pool.plan[FETCHED] = fetched_ns
    soonest(pool, action, fetched_ns, access_ns)


@kernel(inline=True)
def local_ns(pool: PoolState, store: i64, number: i64, is_write: bool) -> i64:
    """Return the time of an access to a memory."""
    bits: i64 = 8 * pool.objects.nbytes[number]
    if is_write:
        return pool.stores.write_ns[store] + sending_ns(bits, pool.stores.write_bps[store])
    return pool.stores.read_ns[store] + sending_ns(bits, pool.stores.read_bps[store])


@kernel(inline=True)
def fetch(pool: PoolState, action: i64, number: i64, turn: i64) -> None:
    """Plan the transfer of an object that the task's `turn`-th access reads.

    It is taken from where it is, or, if it still moves there, from its source if that is no later. While its data is
    yet to come, a transfer lets others pass.
    """
    taken: i64 = pool.objects.place[number]
    taken_ns: i64 = pool.objects.arrives_ns[number]
    begin_ns: i64 = begins_ns(pool, action, taken)
    reaches_ns: i64 = max(begin_ns, taken_ns) + takes_ns(pool, action, number, taken) + delay_ns(pool, action, taken)
    source: i64 = pool.objects.source[number]
    if taken_ns > pool.now_ns and source != NONE and is_way(pool, pool.stores.node[source], action):
        source_ns: i64 = pool.objects.source_ns[number]
        other_ns: i64 = max(begins_ns(pool, action, source), source_ns)
        other_ns += takes_ns(pool, action, number, source) + delay_ns(pool, action, source)
        if other_ns <= reaches_ns:
            taken = source
            taken_ns = source_ns
            begin_ns = begins_ns(pool, action, source)
            reaches_ns = other_ns
    sent_ns: i64 = begin_ns + takes_ns(pool, action, number, taken)
    pool.nodes.planned_ns[pool.stores.node[taken]] = sent_ns
    if pool.stores.node[taken] != action:
        pool.plan[IN_FREE] = sent_ns
    pool.tasks.taken[turn] = taken
    pool.tasks.taken_ns[turn] = taken_ns
    pool.tasks.reaches_ns[turn] = reaches_ns


@kernel(inline=True)
def begins_ns(pool: PoolState, action: i64, store: i64) -> i64:
    """Return when the ports between a store and a node are free for a transfer."""
    src: i64 = pool.stores.node[store]
    begin_ns: i64 = max(pool.now_ns, pool.nodes.planned_ns[src])
    if src != action:
        begin_ns = max(begin_ns, pool.plan[IN_FREE])
    return begin_ns


@kernel(inline=True)
def takes_ns(pool: PoolState, action: i64, number: i64, store: i64) -> i64:
    """Return the time to send an object from a store to a node."""
    src: i64 = pool.stores.node[store]
    rate_bps: i64 = min(pool.stores.read_bps[store], pool.stores.write_bps[pool.nodes.fast[action]])
    if src != action:
        rate_bps = min(rate_bps, pool.ways.rate_bps[way(pool, src, action)])
    return sending_ns(8 * pool.objects.nbytes[number], rate_bps)


@kernel(inline=True)
def delay_ns(pool: PoolState, action: i64, store: i64) -> i64:
    """Return the delay from a store to a node."""
    src: i64 = pool.stores.node[store]
    total_ns: i64 = pool.stores.read_ns[store]
    if src != action:
        total_ns += pool.ways.delay_ns[way(pool, src, action)]
    return total_ns


@kernel(inline=True)
def soonest(pool: PoolState, action: i64, fetched_ns: i64, access_ns: i64) -> None:
    """Choose the engine of a node on which the task ends first, among equals the first one."""
    engines = pool.engines
    pool.plan[ENGINE] = NONE
    for engine in range(pool.nodes.engine_start[action], pool.nodes.engine_start[action + 1]):
        if engines.kind[engine] & pool.tasks.kinds[pool.task] != 0:
            slot: i64 = first_free(pool, engine)
            start_ns: i64 = max(pool.now_ns, engines.free_ns[slot])
            # The division below rounds up: so many tasks share a core.
            sharing: i64 = min(engines.assigned[engine] + 1, engines.slots[engine]) + engines.cores[engine] - 1
            compute_ns: i64 = sending_ns(pool.tasks.float_operations[pool.task], engines.float_ops_per_s[engine])
            compute_ns += sending_ns(pool.tasks.int_operations[pool.task], engines.int_ops_per_s[engine])
            served_ns: i64 = max(start_ns, fetched_ns) + access_ns
            end_ns: i64 = served_ns + compute_ns * (sharing // engines.cores[engine])
            if pool.plan[ENGINE] == NONE or end_ns < pool.plan[END]:
                pool.plan[START] = start_ns
                pool.plan[SERVED] = served_ns
                pool.plan[END] = end_ns
                pool.plan[ENGINE] = engine
                pool.plan[SLOT] = slot


@kernel(inline=True)
def first_free(pool: PoolState, engine: i64) -> i64:
    """Return the slot of an engine that is free first."""
    start: i64 = pool.engines.slot_start[engine]
    best: i64 = start
    for slot in range(start + 1, start + pool.engines.slots[engine]):
        if pool.engines.free_ns[slot] < pool.engines.free_ns[best]:
            best = slot
    return best


@kernel(inline=True)
def squared(time_ns: i64) -> i64:
    """Return the square of a time that is positive and not too long to be squared, in `BACKLOG_UNIT_NS` squared."""
    units: i64 = min(max(time_ns, 0), MOST_BACKLOG_NS) // BACKLOG_UNIT_NS
    return units * units


@kernel(inline=True)
def foretold_ns(pool: PoolState, action: i64) -> i64:
    """Return the predicted cost of the task on a node, as planned: its response, and the resulting waits of others."""
    nodes = pool.nodes
    now_ns: i64 = pool.now_ns
    left: i64 = squared(pool.plan[IN_FREE] - now_ns) - squared(nodes.in_free_ns[action] - now_ns)
    for node in range(nodes.count):
        if nodes.planned_ns[node] != nodes.out_free_ns[node]:
            left += squared(nodes.planned_ns[node] - now_ns) - squared(nodes.out_free_ns[node] - now_ns)
    held: i64 = squared(pool.plan[END] - now_ns) - squared(pool.engines.free_ns[pool.plan[SLOT]] - now_ns)
    waits: i64 = pool.port_price * min(left, MOST_LEFT) + pool.slot_price * min(held, MOST_LEFT)
    return pool.plan[END] - now_ns + (waits >> PRICE_BITS)
