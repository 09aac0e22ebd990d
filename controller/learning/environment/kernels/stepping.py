"""From one decision to the next: the effects of an action, and what happens in between."""

from __future__ import annotations

from typing import Final

from controller.learning.environment.kernels.keeping import drop as drop_object
from controller.learning.environment.kernels.keeping import (
    home_node,
    keep,
    link_newest,
    move,
    next_victim,
    unlink,
    vanish,
    way,
)
from controller.learning.environment.kernels.planning import plan, squared
from controller.learning.environment.kernels.queues import comes_before, drop_first, put
from controller.learning.environment.kernels.seeing import look
from controller.learning.environment.kernels.structures import (
    END,
    ENGINE,
    EVICTED_BYTES,
    EVICTION_NS,
    HELD,
    IN_FREE,
    LEFT,
    NONE,
    RUNNING,
    SERVED,
    SLOT,
    START,
    PoolState,
)
from controller.learning.environment.model import LAST_NS
from controller.scheduling.simulation.kernels.sharing import sending_ns
from dataplane.native import i64, kernel, u32

NEXT: Final = 0
AT_END: Final = 1
NO_CANDIDATE: Final = 2
NO_TIME: Final = 3
AFTER_REFUSED: Final = 4


@kernel
def step(pool: PoolState, action: i64) -> u32:
    """Run the task on a node and go on to the next decision; return the outcome."""
    if action < 0 or action >= pool.nodes.actions or pool.task < 0 or pool.candidates[action] == 0:
        return NO_CANDIDATE
    plan(pool, action)
    act(pool, action)
    if max(pool.plan[END], pool.nodes.out_free_ns[action]) > LAST_NS:
        return NO_TIME
    return advance(pool)


@kernel(inline=True)
def act(pool: PoolState, action: i64) -> None:
    """Run the task as planned."""
    before: i64 = backlog(pool)
    for node in range(pool.nodes.count):
        pool.nodes.out_free_ns[node] = pool.nodes.planned_ns[node]
    pool.nodes.in_free_ns[action] = pool.plan[IN_FREE]
    engine: i64 = pool.plan[ENGINE]
    slot: i64 = pool.plan[SLOT]
    pool.result[HELD] = squared(pool.plan[END] - pool.now_ns) - squared(pool.engines.free_ns[slot] - pool.now_ns)
    pool.engines.free_ns[slot] = pool.plan[END]
    if pool.engines.assigned[engine] < pool.engines.slots[engine]:
        pool.running += 1
    pool.engines.assigned[engine] += 1
    pool.tasks.engine[pool.task] = engine
    put(pool.ends, pool.plan[END], pool.task)
    pool.result[START] = pool.plan[START]
    pool.result[SERVED] = pool.plan[SERVED]
    pool.result[END] = pool.plan[END]
    pool.result[RUNNING] = pool.running
    pool.result[EVICTED_BYTES] = 0
    pool.result[EVICTION_NS] = 0
    keep_all(pool, action)
    pool.result[LEFT] = backlog(pool) - before


@kernel(inline=True)
def backlog(pool: PoolState) -> i64:
    """Return the sum over all ports of the square of the time for which they are occupied, in `BACKLOG_UNIT_NS`."""
    total: i64 = 0
    for node in range(pool.nodes.count):
        total += squared(pool.nodes.in_free_ns[node] - pool.now_ns) + squared(
            pool.nodes.out_free_ns[node] - pool.now_ns
        )
    return total


@kernel(inline=True)
def keep_all(pool: PoolState, action: i64) -> None:
    """Put all that the task uses into a node's fast memory, evicting the least recently used until it fits."""
    pool.decisions += 1
    fast: i64 = pool.nodes.fast[action]
    start: i64 = pool.tasks.access_start[pool.task]
    end: i64 = pool.tasks.access_start[pool.task + 1]
    # Renew all that is used before anything is evicted, so that none of it is a victim.
    for access in range(start, end):
        number: i64 = pool.tasks.access_object[access]
        pool.objects.used[number] = pool.decisions
        if pool.objects.place[number] == fast:
            unlink(pool, action, number)
            link_newest(pool, action, number)
    for access in range(start, end):
        missing: i64 = pool.tasks.access_object[access]
        is_fetched: bool = pool.objects.place[missing] != fast
        if is_fetched:
            while pool.nodes.free_bytes[action] < pool.objects.nbytes[missing]:
                evict(pool, action, next_victim(pool, action))
            keep(pool, action, missing)
        if pool.tasks.access_is_write[access] != 0:
            move(pool, missing, NONE, 0, pool.plan[SERVED])
        elif is_fetched:
            turn: i64 = access - start
            move(pool, missing, pool.tasks.taken[turn], pool.tasks.taken_ns[turn], pool.tasks.reaches_ns[turn])


@kernel(inline=True)
def evict(pool: PoolState, action: i64, number: i64) -> None:
    """Send an object home, behind the data that the task waits for."""
    home: i64 = pool.objects.home[number]
    node: i64 = home_node(pool, number)
    fast: i64 = pool.nodes.fast[action]
    since_ns: i64 = pool.objects.arrives_ns[number]
    delay_ns: i64 = pool.stores.read_ns[fast]
    drop_object(pool, number)
    pool.objects.place[number] = home
    rate_bps: i64 = min(pool.stores.read_bps[fast], pool.stores.write_bps[home])
    begin_ns: i64 = max(pool.now_ns, pool.nodes.out_free_ns[action])
    if node != action:
        rate_bps = min(rate_bps, pool.ways.rate_bps[way(pool, action, node)])
        begin_ns = max(begin_ns, pool.nodes.in_free_ns[node])
        delay_ns += pool.ways.delay_ns[way(pool, action, node)]
    takes_ns: i64 = sending_ns(8 * pool.objects.nbytes[number], rate_bps)
    pool.nodes.out_free_ns[action] = begin_ns + takes_ns
    if node != action:
        pool.nodes.in_free_ns[node] = begin_ns + takes_ns
    move(pool, number, fast, since_ns, max(begin_ns, since_ns) + takes_ns + delay_ns)
    pool.result[EVICTED_BYTES] += pool.objects.nbytes[number]
    pool.result[EVICTION_NS] += takes_ns


@kernel
def advance(pool: PoolState) -> u32:
    """Go on to the next task that has a candidate, and observe; return the outcome."""
    while True:
        pool.task = NONE
        end_all(pool)
        if not take_ready(pool):
            return AT_END
        change(pool)
        why: i64 = look(pool)
        if why == 0:
            return NEXT
        refuse(pool, pool.task, why)


@kernel(inline=True)
def next_ready_ns(pool: PoolState) -> i64:
    """Return when the next task is ready, -1 if none is yet."""
    tasks = pool.tasks
    ready_ns: i64 = -1
    if pool.first < tasks.firsts:
        ready_ns = tasks.submitted_ns[tasks.first[pool.first]]
    if pool.ready.size > 0 and (ready_ns < 0 or pool.ready.time_ns[0] < ready_ns):
        ready_ns = pool.ready.time_ns[0]
    return ready_ns


@kernel(inline=True)
def end_all(pool: PoolState) -> None:
    """End all tasks that end before the next one is ready, and make ready what depended on them."""
    while pool.ends.size > 0:
        ready_ns: i64 = next_ready_ns(pool)
        if ready_ns >= 0 and pool.ends.time_ns[0] > ready_ns:
            break
        end_ns: i64 = pool.ends.time_ns[0]
        task: i64 = pool.ends.task[0]
        drop_first(pool.ends)
        engine: i64 = pool.tasks.engine[task]
        pool.engines.assigned[engine] -= 1
        # Otherwise a task that waited takes the slot over, and as many run as before.
        if pool.engines.assigned[engine] < pool.engines.slots[engine]:
            pool.running -= 1
        for index in range(pool.tasks.follower_start[task], pool.tasks.follower_start[task + 1]):
            follower: i64 = pool.tasks.follower[index]
            pool.tasks.missing[follower] -= 1
            if pool.tasks.missing[follower] == 0:
                put(pool.ready, max(end_ns, pool.tasks.submitted_ns[follower]), follower)


@kernel(inline=True)
def take_ready(pool: PoolState) -> bool:
    """Make the next task the current one, at its time; return False if there is none."""
    tasks = pool.tasks
    has_first: bool = pool.first < tasks.firsts
    if not has_first and pool.ready.size == 0:
        return False
    is_first: bool = has_first
    if has_first and pool.ready.size > 0:
        number: i64 = tasks.first[pool.first]
        is_first = comes_before(tasks.submitted_ns[number], number, pool.ready.time_ns[0], pool.ready.task[0])
    if is_first:
        pool.task = tasks.first[pool.first]
        pool.now_ns = tasks.submitted_ns[pool.task]
        pool.first += 1
    else:
        pool.task = pool.ready.task[0]
        pool.now_ns = pool.ready.time_ns[0]
        drop_first(pool.ready)
    return True


@kernel(inline=True)
def change(pool: PoolState) -> None:
    """Let nodes vanish and join, and use the network of the present time."""
    while pool.change < pool.changes.count and pool.changes.time_ns[pool.change] <= pool.now_ns:
        node: i64 = pool.changes.node[pool.change]
        pool.nodes.is_there[node] = pool.changes.is_there[pool.change]
        if pool.nodes.is_there[node] == 0:
            vanish(pool, node)
        pool.change += 1
    while pool.epoch + 1 < pool.ways.epochs and pool.ways.times_ns[pool.epoch + 1] <= pool.now_ns:
        pool.epoch += 1


@kernel(inline=True)
def refuse(pool: PoolState, refused: i64, why: i64) -> None:
    """Refuse a task, and all that depend on it."""
    tasks = pool.tasks
    tasks.refusal[refused] = why
    tasks.listed[0] = refused
    waiting: i64 = 1
    while waiting > 0:
        waiting -= 1
        task: i64 = tasks.listed[waiting]
        for index in range(tasks.follower_start[task], tasks.follower_start[task + 1]):
            follower: i64 = tasks.follower[index]
            if tasks.refusal[follower] == 0:
                tasks.refusal[follower] = AFTER_REFUSED
                tasks.listed[waiting] = follower
                waiting += 1
