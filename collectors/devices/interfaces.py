"""Network devices: their own counters, and the use of their links.

Only they show the use of a host's link towards its switch, which no switch measures.
"""

from __future__ import annotations

from typing import Final

from collectors.devices.root import Root
from collectors.devices.values import InterfaceRates, InterfaceSample
from dataplane.clock import NS_PER_S

_WIRE_BYTES: Final = 24
"""Bytes per frame on the wire that Linux does not count: preamble, checksum, gap (IEEE 802.3)."""
_COLUMNS: Final = 16


def read_interfaces(root: Root, time_ns: int, process: str = "self") -> tuple[InterfaceSample, ...]:
    """Return the counters of all network devices but loopback, as a process's network namespace has them.

    From /proc/PROCESS/net/dev. Link rates are read from /sys, so for this process only; None where the device does not
    report one, as virtual ones do not.
    """
    lines = (root.text("proc", process, "net", "dev") or "").splitlines()[2:]
    samples = []
    for line in lines:
        name, _, counters = line.partition(":")
        figures = [int(word) for word in counters.split() if word.isdecimal()]
        if (name := name.strip()) == "lo" or len(figures) < _COLUMNS:
            continue
        rx_bytes, rx_packets, rx_errors, rx_drops = figures[:4]
        tx_bytes, tx_packets, tx_errors, tx_drops = figures[8:12]
        samples.append(
            InterfaceSample(
                name=name,
                time_ns=time_ns,
                rx_bytes=rx_bytes,
                tx_bytes=tx_bytes,
                rx_packets=rx_packets,
                tx_packets=tx_packets,
                rx_errors=rx_errors,
                tx_errors=tx_errors,
                rx_drops=rx_drops,
                tx_drops=tx_drops,
                link_rate_bps=_link_rate_bps(root, name) if process == "self" else None,
            )
        )
    return tuple(samples)


def _link_rate_bps(root: Root, name: str) -> int | None:
    speed_mbps = root.integer("sys", "class", "net", name, "speed")
    return speed_mbps * 10**6 if speed_mbps is not None and speed_mbps > 0 else None


def interface_rates(
    before: InterfaceSample, after: InterfaceSample, link_rate_bps: int | None = None
) -> InterfaceRates | None:
    """Return the rates per second at which a device sent and received between two samples, on the wire.

    `link_rate_bps` is the topology's if the device reports none, or a wrong one. None if no time has passed, or a
    counter went back, as when the device was recreated.
    """
    counters = (
        (before.rx_bytes, after.rx_bytes, before.rx_packets, after.rx_packets),
        (before.tx_bytes, after.tx_bytes, before.tx_packets, after.tx_packets),
    )
    interval_ns = after.time_ns - before.time_ns
    if interval_ns <= 0 or any(new < old for old, new in zip(before.counters, after.counters, strict=True)):
        return None
    rx_bps, tx_bps = (
        (new - old + _WIRE_BYTES * (new_packets - old_packets)) * 8 * NS_PER_S // interval_ns
        for old, new, old_packets, new_packets in counters
    )
    return InterfaceRates(
        after.name,
        after.time_ns,
        interval_ns,
        rx_bps,
        tx_bps,
        after.rx_drops - before.rx_drops,
        after.tx_drops - before.tx_drops,
        link_rate_bps or after.link_rate_bps,
    )
