"""Reports that look like one before, and hops about which nothing is unusual: the native core's short ways."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.settings import CollectorSettings
from tests.collectors.native.test_core import MS, Pair, ways
from tests.collectors.reports import MICRO, Reporter, long_way

TIMED = 0xF900
"""Node id, ports, hop latency, queue, time of arrival, TX utilisation: no time of leaving."""
WITH_BUFFER = 0xF980
WORDS_AT = 9
INNER_AT = 20
OWN_BYTES = 24
PORTS_AT = INNER_AT + OWN_BYTES + 20
SHIM_AT = PORTS_AT + 8
STACK_AT = SHIM_AT + 16
"""Places in reports of IPv4 packets."""


def over_tcp(payload: bytes) -> bytes:
    """Return a report of a packet with TCP in place of UDP."""
    header = bytearray(payload[:PORTS_AT])
    header[WORDS_AT] += 3
    header[PORTS_AT - 11] = 6
    header[PORTS_AT - 17] += 12
    behind_ports = bytes([0, 0, 0, 1] * 2 + [0x50, 0] * 2)
    return bytes(header) + payload[PORTS_AT : PORTS_AT + 4] + behind_ports + payload[PORTS_AT + 8 :]


def with_port(payload: bytes) -> bytes:
    """Return a report whose INT shim keeps the port that the packet had."""
    shim = bytes([payload[SHIM_AT] | 4, payload[SHIM_AT + 1], 27, 88])
    return payload[:SHIM_AT] + shim + payload[SHIM_AT + 4 :]


V4, V6 = Reporter(bits=TIMED), Reporter("2001:db8::1", "2001:db8::2", bits=TIMED)
FORMS: dict[str, tuple[Reporter, Callable[[bytes], bytes], dict[str, int | None]]] = {
    "IPv4": (V4, bytes, {}),
    "IPv6": (V6, bytes, {}),
    "TCP": (V4, over_tcp, {}),
    "no time": (Reporter(bits=0xC400), bytes, {}),
    "kept port": (V4, with_port, {"int_dscp": None, "int_udp_port": 6001}),
    "report port": (V4, bytes, {"report_udp_port": 6000}),
}


@pytest.mark.parametrize("form", FORMS)
def test_report_one_bit_from_a_known_pattern_is_read_correctly(form: str) -> None:
    model, change, marking = FORMS[form]
    pair, reporter = Pair(CollectorSettings(**marking)), replace(model, sequences={})  # type: ignore[arg-type]
    size = STACK_AT + 32 * (form == "IPv6") + 12 * (form == "TCP")
    payloads: list[bytes] = []
    # Not the sequence number.
    for position in (0, *range(4, size)):
        for bit in range(8):
            changed = bytearray(change(reporter.stacked(long_way(len(payloads) * MICRO, queue=bit))))
            changed[position] ^= 1 << bit
            payloads += [bytes(changed), change(reporter.stacked(long_way(len(payloads) * MICRO)))]
    pair.receive(payloads)


@settings(max_examples=60)
@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from([0, 1, 20, 70, 600]),
            st.lists(
                st.tuples(st.integers(0, 7), st.integers(0, 1), st.sampled_from([0, 0, 0, 1, 40, 100, 700])), max_size=8
            ),
        ),
        min_size=1,
        max_size=8,
    ),
    bits=st.lists(st.sampled_from([TIMED, WITH_BUFFER, 0xF800, 0xD900]), min_size=2, max_size=2),
)
def test_known_ways_at_any_time_say_the_same(
    batches: list[tuple[int, list[tuple[int, int, int]]]], bits: list[int]
) -> None:
    pair = Pair()
    reporters = [Reporter(src_port=port, bits=bits[port]) for port in (0, 1)]
    sequence = 0
    for step_ms, batch in batches:
        pair.clock.advance_to(pair.clock.now_ns() + step_ms * MS)
        payloads: list[bytes] = []
        for which, flow, back_ms in batch:
            sequence += 1
            start_ns = 10**9 + pair.clock.now_ns() + sequence * MICRO - back_ms * MS
            hops = [
                replace(hop, queue=sequence % 5, tx_bytes=1000 * sequence, buffer=sequence + index)
                for index, hop in enumerate(ways(start_ns)[which])
            ]
            payloads.append(reporters[flow].stacked(hops, sequence=sequence))
        pair.receive(payloads)
