"""Flights over links by stamps of two clocks: notes the least of each link, and corrects each if its clocks are known.

`collectors.decode.samples.Sampler` and `collectors.clocks.flights.Flights` are the same in plain Python.
"""

from __future__ import annotations

from collectors.clocks.values import FARTHEST_NS
from collectors.native.structures import NONE32, NONE64, Hop
from collectors.native.tables import TelemetryTables
from dataplane.clock import NS_PER_S
from dataplane.native import as_i64, as_u64, i64, kernel, u32, u64


@kernel(inline=True)
def departure(hop: Hop) -> u64:
    """Return the stamp with which a packet left a hop, NONE64 where it does not report it."""
    if hop.left_ns != NONE64:
        return hop.left_ns
    if hop.arrived_ns == NONE64 or hop.latency_ns == NONE32:
        return NONE64
    return hop.arrived_ns + as_u64(hop.latency_ns)


@kernel(inline=True)
def corrected_flight(tables: TelemetryTables, link: u32, hop: Hop, arrived_ns: u64, counting: bool) -> u64:
    """Return a link's delay by one packet's stamps, NONE64 if its clocks are unknown or the stamps are implausible.

    The latter is counted, if requested.
    """
    left_ns: u64 = departure(hop)
    cell = tables.clocks.links[link]
    if left_ns == NONE64 or arrived_ns == NONE64 or cell.is_corrected == 0 or hop.latency_ns == NONE32:  # noqa: PLR1714
        return NONE64
    since_ns: i64 = min(max(as_i64(left_ns - cell.at_ns), -FARTHEST_NS), FARTHEST_NS)
    flight_ns: i64 = as_i64(arrived_ns - left_ns) + cell.offset_ns + cell.drift_ppb * since_ns // NS_PER_S
    if flight_ns < -cell.uncertainty_ns or flight_ns > as_i64(tables.limits.longest_ns):
        tables.counts.implausible_stamps += as_u64(counting)
        return NONE64
    return as_u64(hop.latency_ns) + as_u64(max(flight_ns, 0))


@kernel
def corrected_delay(tables: TelemetryTables, link: u32, hop: Hop, arrived_ns: u64) -> u64:
    """Note a packet's flight over a link; return the link's delay, NONE64 if its clocks are unknown."""
    left_ns: u64 = departure(hop)
    if left_ns == NONE64 or arrived_ns == NONE64:  # noqa: PLR1714 - kernels have no `in`
        return NONE64
    cell = tables.clocks.links[link]
    flight_ns: i64 = as_i64(arrived_ns - left_ns)
    if cell.samples == 0 or flight_ns < cell.flight_ns:
        cell.flight_ns = flight_ns
        cell.left_ns = left_ns
        cell.received_ns = tables.batch.now_ns
    cell.samples += 1
    return corrected_flight(tables, link, hop, arrived_ns, True)
