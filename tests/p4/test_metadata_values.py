"""Meaning of a hop's metadata, to the nanosecond and the byte, which only virtual time can show."""

from __future__ import annotations

import pytest

from dataplane.switch.switch import PortSettings
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.entries import COLLECTOR_PORT, DOWN_PORT, HOST_PORT, UP_PORT, Watch, sink, source, transit
from tests.p4.frames import Shape, build
from tests.p4.targets import frame_on, pass_through
from tests.p4.telemetry import IntHeaders, decode_report, read_int, with_int

WINDOW_US = 1 << 16
LATENCY, QUEUE, INGRESS_TIME, EGRESS_TIME, UTILIZATION = 2, 3, 4, 5, 7


def slow_switch() -> BuiltinTarget:
    """Return a switch whose port to the next switch sends 8 Mbit/s: a byte a microsecond."""
    rates = {DOWN_PORT: 8_000_000}
    ports = [PortSettings(number, rate_bps=rates.get(number)) for number in (1, 2, 3, 4)]
    return BuiltinTarget(ports)


def test_waiting_shows_in_latency_timestamps_and_occupancy() -> None:
    switch = slow_switch()
    marked = [with_int(build(src_port=port), IntHeaders(0x3C00, 8)) for port in (1, 2, 3)]
    sent = pass_through(switch, transit(), UP_PORT, *marked, expect=3)
    hops = [read_int(frame).hops()[0] for _, frame in sent]
    arrived_ns = hops[0][INGRESS_TIME]
    on_wire_ns = [(len(frame) + WIRE_OVERHEAD_BYTES) * 1000 for _, frame in sent]
    assert [hop[INGRESS_TIME] for hop in hops] == [arrived_ns] * 3
    assert [hop[EGRESS_TIME] - arrived_ns for hop in hops] == [0, on_wire_ns[0], sum(on_wire_ns[:2])]
    assert [hop[LATENCY] for hop in hops] == [0, on_wire_ns[0], sum(on_wire_ns[:2])]
    assert [hop[QUEUE] for hop in hops] == [0, 1, 2], "they came in one burst: the first had not left yet"


def test_the_sink_reports_its_own_waiting() -> None:
    switch = BuiltinTarget([PortSettings(n, rate_bps=8_000_000 if n == HOST_PORT else None) for n in (1, 2, 3, 4)])
    marked = [with_int(build(src_port=port), IntHeaders(0x3C00, 8)) for port in (1, 2)]
    sent = pass_through(switch, sink(), UP_PORT, *marked, expect=4)
    metadata = [decode_report(frame).metadata for port, frame in sent if port == COLLECTOR_PORT]
    on_wire_ns = (len(build()) + WIRE_OVERHEAD_BYTES) * 1000
    assert [values[LATENCY] for values in metadata] == [0, on_wire_ns]


@pytest.mark.parametrize(("latency_us", "latency_ns"), [(4_294_967, 4_294_967_000), (4_294_968, 0xFFFFFFFF)])
def test_a_latency_that_32_bits_cannot_hold_is_not_available(latency_us: int, latency_ns: int) -> None:
    first = with_int(build(), IntHeaders(0x2000, 8))
    # One byte takes this long on the wire, so that the second frame waits exactly latency_us.
    bits = (len(first) + 4 + WIRE_OVERHEAD_BYTES) * 8
    ports = [PortSettings(number, rate_bps=bits if number == DOWN_PORT else None) for number in (1, 2, 3, 4)]
    switch = BuiltinTarget(ports)
    switch.reset()
    switch.write(transit().items())
    switch.clock.advance_to(2_000_000_000)
    for _ in range(5):  # five frames of a second each, then one that arrives late enough
        switch.switch.receive(UP_PORT, [first])
    switch.clock.advance_to(7_000_000_000 - latency_us * 1000)
    switch.switch.receive(UP_PORT, [first])
    last = switch.run()[-1][1]
    assert read_int(last).hops()[0][LATENCY] == latency_ns


def utilization(switch: BuiltinTarget, at_us: int) -> int:
    """Send a marked packet at a given time and return the transmit utilisation that it collects."""
    switch.clock.advance_to(at_us * 1000)
    switch.switch.receive(UP_PORT, [with_int(build(), IntHeaders(0x0100, 8))])
    return read_int(frame_on(switch.run(), DOWN_PORT)).hops()[0][UTILIZATION]


def test_utilization_is_of_the_last_complete_window() -> None:
    switch = BuiltinTarget()
    switch.write(transit().items())
    marked = len(with_int(build(), IntHeaders(0x0100, 8)))
    start = 100 * WINDOW_US
    assert utilization(switch, start) == 0
    assert utilization(switch, start + 10) == 0
    assert utilization(switch, start + WINDOW_US - 1) == 0
    assert utilization(switch, start + WINDOW_US) == 3 * marked
    assert utilization(switch, start + 2 * WINDOW_US - 1) == 3 * marked
    assert utilization(switch, start + 2 * WINDOW_US) == 2 * marked
    assert utilization(switch, start + 4 * WINDOW_US) == 0, "nothing was sent in the window between"


def test_utilization_is_a_ports_own() -> None:
    switch = BuiltinTarget()
    switch.write(sink().items())
    plain = build(Shape(payload=b"x" * 1000))
    switch.clock.advance_to(200 * WINDOW_US * 1000)
    switch.switch.receive(UP_PORT, [plain] * 3)
    switch.run()
    switch.reset()
    switch.write(source(Watch(0x0100)).items())
    assert read_int(frame_on(switch.send(HOST_PORT, build(), expect=1), DOWN_PORT)).hops()[0][UTILIZATION] == 0
