"""What the kernels of the cost map work on, in memory that Python shares."""

from __future__ import annotations

from dataplane.native import Array, Struct, i64, u8, u32


class Figures(Struct):
    """Columns of figures, one row for each link, host or pair.

    The low three bits of `measured` say which figures of a link are telemetry's; of a pair, which are of all its
    links, and the three above these, which are of at least one. The next one, of a pair of hosts, says that the first
    host measured its own link.
    """

    delay_ns: Array[i64]
    available_bps: Array[i64]
    loss_ppb: Array[i64]
    age_ns: Array[i64]
    measured: Array[u8]


class Hosts(Struct):
    """Hosts: the switch that each hangs on, that switch's place among destinations, and its two links."""

    hosts: u32
    switches: u32
    switch: Array[u32]
    destination: Array[u32]
    up: Figures
    down: Figures
