"""Structures of the cost map's kernels, in memory shared with Python."""

from __future__ import annotations

from dataplane.native import Array, Struct, i64, u8, u32


class Figures(Struct):
    """Columns of figures, one row for each link, host or pair.

    The low three bits of `measured` mark a link's figures from telemetry; for a pair, those measured on all its links,
    and the next three those measured on at least one. The next bit, for a pair of hosts, means that the first host
    measured its own link.
    """

    delay_ns: Array[i64]
    available_bps: Array[i64]
    loss_ppb: Array[i64]
    age_ns: Array[i64]
    measured: Array[u8]


class Hosts(Struct):
    """Hosts: each one's switch, that switch's index among destinations, and the host's two links."""

    hosts: u32
    switches: u32
    switch: Array[u32]
    destination: Array[u32]
    up: Figures
    down: Figures
