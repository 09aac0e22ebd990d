"""Contents of the fast memories: lists by age, and evictable bytes."""

from __future__ import annotations

from controller.learning.environment.kernels.structures import NONE, PoolState
from dataplane.native import i64, kernel


@kernel(inline=True)
def is_way(pool: PoolState, src: i64, dst: i64) -> bool:
    """Return whether data can get from one node to another now."""
    if pool.nodes.is_there[src] == 0 or pool.nodes.is_there[dst] == 0:
        return False
    return src == dst or pool.ways.delay_ns[way(pool, src, dst)] >= 0


@kernel(inline=True)
def way(pool: PoolState, src: i64, dst: i64) -> i64:
    """Return the index of a way's figures."""
    return (pool.epoch * pool.nodes.count + src) * pool.nodes.count + dst


@kernel(inline=True)
def home_node(pool: PoolState, number: i64) -> i64:
    """Return an object's home node."""
    return pool.stores.node[pool.objects.home[number]]


@kernel(inline=True)
def link_newest(pool: PoolState, node: i64, number: i64) -> None:
    """Make an object the most recently used of a node."""
    before: i64 = pool.nodes.newest[node]
    pool.objects.older[number] = before
    pool.objects.newer[number] = NONE
    if before == NONE:
        pool.nodes.oldest[node] = number
    else:
        pool.objects.newer[before] = number
    pool.nodes.newest[node] = number


@kernel(inline=True)
def unlink(pool: PoolState, node: i64, number: i64) -> None:
    """Remove an object from a node's list."""
    older: i64 = pool.objects.older[number]
    newer: i64 = pool.objects.newer[number]
    if older == NONE:
        pool.nodes.oldest[node] = newer
    else:
        pool.objects.newer[older] = newer
    if newer == NONE:
        pool.nodes.newest[node] = older
    else:
        pool.objects.older[newer] = older


@kernel(inline=True)
def drop(pool: PoolState, number: i64) -> None:
    """Remove an object from the fast memory that holds it, if any."""
    store: i64 = pool.objects.place[number]
    if store != NONE and pool.stores.is_fast[store] != 0:
        node: i64 = pool.stores.node[store]
        unlink(pool, node, number)
        pool.nodes.free_bytes[node] += pool.objects.nbytes[number]
        pool.nodes.held[node * pool.nodes.count + home_node(pool, number)] -= pool.objects.nbytes[number]


@kernel(inline=True)
def keep(pool: PoolState, node: i64, number: i64) -> None:
    """Put an object into a node's fast memory, which has room for it."""
    drop(pool, number)
    link_newest(pool, node, number)
    pool.nodes.free_bytes[node] -= pool.objects.nbytes[number]
    pool.nodes.held[node * pool.nodes.count + home_node(pool, number)] += pool.objects.nbytes[number]
    pool.objects.place[number] = pool.nodes.fast[node]


@kernel(inline=True)
def move(pool: PoolState, number: i64, source: i64, source_ns: i64, arrives_ns: i64) -> None:
    """Record the source of an object, from when it is available there, and when it arrives."""
    if pool.await_arrival != 0:
        pool.objects.source[number] = source
        pool.objects.source_ns[number] = source_ns
        pool.objects.arrives_ns[number] = arrives_ns


@kernel(inline=True)
def evictable_bytes(pool: PoolState, node: i64, task: i64) -> i64:
    """Return how much a node can send home, except what a task uses."""
    nbytes: i64 = 0
    for home in range(pool.nodes.count):
        if is_way(pool, node, home):
            nbytes += pool.nodes.held[node * pool.nodes.count + home]
    for access in range(pool.tasks.access_start[task], pool.tasks.access_start[task + 1]):
        number: i64 = pool.tasks.access_object[access]
        if pool.objects.place[number] == pool.nodes.fast[node] and is_way(pool, node, home_node(pool, number)):
            nbytes -= pool.objects.nbytes[number]
    return nbytes


@kernel(inline=True)
def next_victim(pool: PoolState, node: i64) -> i64:
    """Return the least recently used object that may be evicted and that the task does not use."""
    number: i64 = pool.nodes.oldest[node]
    while pool.objects.used[number] == pool.decisions or not is_way(pool, node, home_node(pool, number)):
        number = pool.objects.newer[number]
    return number


@kernel(inline=True)
def vanish(pool: PoolState, node: i64) -> None:
    """Return all that a node keeps to its home, in the state it had there; data that tasks created has no owner again.

    Nothing is available from the node any more, but data under way arrives.
    """
    while pool.nodes.oldest[node] != NONE:
        number: i64 = pool.nodes.oldest[node]
        drop(pool, number)
        pool.objects.place[number] = pool.objects.home[number]
        pool.objects.arrives_ns[number] = 0
        if pool.objects.created[number] != 0:
            pool.objects.place[number] = NONE
    for moving in range(pool.objects.count):
        if pool.objects.source[moving] != NONE and pool.stores.node[pool.objects.source[moving]] == node:
            pool.objects.source[moving] = NONE
