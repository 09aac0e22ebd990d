"""Data structures of the simulation's kernels, in memory shared with Python."""

from __future__ import annotations

from controller.network.algorithms.structures import Heap
from dataplane.native import Array, Struct, i64, u32, u64


class Links(Struct):
    """Directed links: the capacity of each for transfers, and the list of flows that cross it.

    `first` begins a link's list of hops (a flow's link each). `seen`, `weight` and `left` belong to the current
    settling: its number, the shares of flows not yet fixed, and the capacity left to these (bit/s times `ONE`).
    `changed` lists links whose flows must be recomputed, `is_changed` marks them.
    """

    capacity_bps: Array[i64]
    first: Array[u32]
    seen: Array[u64]
    weight: Array[i64]
    left: Array[i64]
    listed: Array[u32]
    changes: u32
    changed: Array[u32]
    is_changed: Array[u32]


class Flows(Struct):
    """Flows by slot. A flow's hop `place` is at `slot * stride + place`: its link, and the share of the flow there.

    `following` and `before` are neighbours in a link's list of hops. `rate_bps` applies since `since_ns`, when
    `left_bits` were still to be sent; `finish_ns` is when none are left, `NEVER` at rate 0. `active` lists the slots in
    use.
    """

    stride: u32
    count: u32
    active: Array[u32]
    place: Array[u32]
    hops: Array[u32]
    link: Array[u32]
    share: Array[i64]
    following: Array[u32]
    before: Array[u32]
    rate_bps: Array[i64]
    left_bits: Array[i64]
    since_ns: Array[i64]
    finish_ns: Array[i64]
    seen: Array[u64]
    fixed: Array[u64]
    listed: Array[u32]


class Sharing(Struct):
    """The whole state; `settlings` counts recomputations of rates."""

    settlings: u64
    links: Links
    flows: Flows
    heap: Heap
