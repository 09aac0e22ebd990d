"""A whole run at once, without observing each decision: for oracles, which play an input thousands of times."""

from __future__ import annotations

from typing import Final

from controller.learning.environment.kernels.planning import plan
from controller.learning.environment.kernels.stepping import NEXT, step
from controller.learning.environment.kernels.structures import END, ENGINE, IN_FREE, NONE, START, PoolState
from dataplane.native import Array, Struct, i64, kernel, u32

PRICE_ONE: Final = 1024


class Play(Struct):
    """Assignments and results per task, by task number.

    `given` is a node, or NONE where prices decide; `taken` is the node used and `end_ns` the actual end.
    `engine_prices` apply to the time for which a task holds each engine, `arriving_price` and `leaving_price` to the
    time by which its data prolongs the occupancy of ports, inbound and outbound: each in 1/1024 of a ns of the task's
    end.
    """

    given: Array[i64]
    taken: Array[i64]
    end_ns: Array[i64]
    engine_prices: Array[i64]
    arriving_price: i64
    leaving_price: i64


@kernel
def play(pool: PoolState, told: Play) -> u32:
    """Decide on all tasks from the current one on; return the reason for the end."""
    outcome: u32 = NEXT
    while outcome == NEXT:
        task: i64 = pool.task
        action: i64 = told.given[task]
        if action == NONE:
            action = cheapest(pool, told)
        told.taken[task] = action
        outcome = step(pool, action)
        told.end_ns[task] = pool.result[END]
    return outcome


@kernel(inline=True)
def cheapest(pool: PoolState, told: Play) -> i64:
    """Return the candidate with the lowest cost, among equals the first."""
    best: i64 = NONE
    least: i64 = 0
    for action in range(pool.nodes.actions):
        if pool.candidates[action] != 0:
            cost: i64 = cost_of(pool, told, action)
            if best == NONE or cost < least:
                best = action
                least = cost
    return best


@kernel(inline=True)
def cost_of(pool: PoolState, told: Play, action: i64) -> i64:
    """Return the cost on a node: the task's end, and all that it holds until then."""
    plan(pool, action)
    now_ns: i64 = pool.now_ns
    engine: i64 = pool.plan[ENGINE]
    cost: i64 = PRICE_ONE * (pool.plan[END] - now_ns)
    cost += told.engine_prices[engine] * (pool.plan[END] - pool.plan[START])
    arriving_ns: i64 = max(pool.plan[IN_FREE], now_ns) - max(pool.nodes.in_free_ns[action], now_ns)
    leaving_ns: i64 = 0
    for node in range(pool.nodes.count):
        leaving_ns += max(pool.nodes.planned_ns[node], now_ns) - max(pool.nodes.out_free_ns[node], now_ns)
    return cost + told.arriving_price * arriving_ns + told.leaving_price * leaving_ns
