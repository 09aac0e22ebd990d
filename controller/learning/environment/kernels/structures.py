"""Data structures of the pool's kernels, in memory shared with Python; `NONE` ends lists and means nobody."""

from __future__ import annotations

from typing import Final

from dataplane.native import Array, Struct, i64, u8, u32

NONE: Final = -1


class Nodes(Struct):
    """Nodes, the first `actions` of them with engines: node n's are those from `engine_start[n]` on.

    `oldest` and `newest` are the ends of the list of a node's fast memory; `held[n * count + home]` bytes of it have
    their home at a node. `planned_ns` is scratch memory: `out_free_ns` after a plan.
    """

    count: i64
    actions: i64
    kinds: Array[i64]
    engine_start: Array[i64]
    fast: Array[i64]
    capacity_bytes: Array[i64]
    free_bytes: Array[i64]
    oldest: Array[i64]
    newest: Array[i64]
    held: Array[i64]
    in_free_ns: Array[i64]
    out_free_ns: Array[i64]
    planned_ns: Array[i64]
    is_there: Array[i64]


class Engines(Struct):
    """Engines, node by node; from `slot_start` on, `free_ns` says when each slot's last task ends."""

    kind: Array[i64]
    cores: Array[i64]
    slots: Array[i64]
    slot_start: Array[i64]
    float_ops_per_s: Array[i64]
    int_ops_per_s: Array[i64]
    assigned: Array[i64]
    free_ns: Array[i64]


class Stores(Struct):
    """The memories of the pool."""

    node: Array[i64]
    is_fast: Array[i64]
    read_ns: Array[i64]
    write_ns: Array[i64]
    read_bps: Array[i64]
    write_bps: Array[i64]


class Ways(Struct):
    """The network: figures are [epoch, source, destination]; features are bits of float32, ordered as their values."""

    epochs: i64
    times_ns: Array[i64]
    delay_ns: Array[i64]
    rate_bps: Array[i64]
    delay_feature: Array[u32]
    bandwidth_feature: Array[u32]


class Objects(Struct):
    """Objects: the store that each is in and its home, its neighbours by age in the fast memory that keeps it.

    `arrives_ns` is when it really is in its store. Before that it is available in store `source`, from `source_ns` on;
    NONE if it is newly written. `used` is the number of the last decision on a task that uses it.
    """

    count: i64
    nbytes: Array[i64]
    home: Array[i64]
    place: Array[i64]
    arrives_ns: Array[i64]
    source: Array[i64]
    source_ns: Array[i64]
    created: Array[i64]
    older: Array[i64]
    newer: Array[i64]
    used: Array[i64]


class Tasks(Struct):
    """Tasks as in a workload; `missing` counts the unfinished predecessors of each, `refusal` is 0 if not refused.

    `first` are the `firsts` tasks without predecessors, in their order. `features` are three float32 each, as bits.
    `listed` is scratch memory, and so is a plan of each access of a task: the store that it is `taken` from, from
    `taken_ns` on, and when it arrives.
    """

    firsts: i64
    submitted_ns: Array[i64]
    float_operations: Array[i64]
    int_operations: Array[i64]
    kinds: Array[i64]
    access_start: Array[i64]
    access_object: Array[i64]
    access_is_write: Array[i64]
    first: Array[i64]
    follower_start: Array[i64]
    follower: Array[i64]
    data_bytes: Array[i64]
    features: Array[u32]
    missing: Array[i64]
    engine: Array[i64]
    refusal: Array[i64]
    listed: Array[i64]
    taken: Array[i64]
    taken_ns: Array[i64]
    reaches_ns: Array[i64]


class Changes(Struct):
    """Nodes that vanish or join."""

    count: i64
    time_ns: Array[i64]
    node: Array[i64]
    is_there: Array[i64]


class Queue(Struct):
    """A binary heap of tasks by time, then by number."""

    size: i64
    time_ns: Array[i64]
    task: Array[i64]


class PoolState(Struct):
    """The whole state, and the pending decision; `slots` and `running` are of the whole system.

    `first` is how many of `tasks.first`, those without predecessors, have been decided on. Without `await_arrival` data
    is in its place from the decision that moves it. With `has_foretold` the predicted cost of a decision is observed,
    by prices of ports and slots. `row` and `candidates` are the observation, in which the load's features begin at
    `load_start`, 0 if they are off. `plan` is the task's predicted run on a node, `result` the outcome of the last
    decision.
    """

    now_ns: i64
    task: i64
    epoch: i64
    first: i64
    change: i64
    decisions: i64
    running: i64
    slots: i64
    has_network: i64
    await_arrival: i64
    load_start: i64
    has_foretold: i64
    port_price: i64
    slot_price: i64
    nodes: Nodes
    engines: Engines
    stores: Stores
    ways: Ways
    objects: Objects
    tasks: Tasks
    changes: Changes
    ready: Queue
    ends: Queue
    row: Array[u32]
    candidates: Array[u8]
    plan: Array[i64]
    result: Array[i64]


# Places in `plan` ...
START: Final = 0
SERVED: Final = 1
END: Final = 2
ENGINE: Final = 3
SLOT: Final = 4
IN_FREE: Final = 5
FETCHED: Final = 6
PLAN_PLACES: Final = 7
# ... and in `result`, whose first places are those of `plan`: START, SERVED, END.
EVICTED_BYTES: Final = 3
EVICTION_NS: Final = 4
RUNNING: Final = 5
LEFT: Final = 6
HELD: Final = 7
RESULT_PLACES: Final = 8
