"""Records of reports as messages: every value survives, rows that make no sense are a clear error."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.feed import records_pb2 as messages
from collectors.feed.records import drops_message, drops_of, records_message, records_of
from collectors.values import DropRecord, FlowKey, HopRecord
from dataplane.rpc.errors import MessageError
from tests.collectors.feed.drawn import DROPS, RECORDS

FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)
HOP = HopRecord(1, FLOW, 7, 3, 0, 2, 7, None, None, None, None, None, None, None, None)
DROP = DropRecord(1, 7, 3, 7, 1, None, None, 170, FLOW)


@given(st.lists(RECORDS, max_size=5))
def test_records_survive(records: list[HopRecord]) -> None:
    data = records_message(records).SerializeToString()
    assert records_of(messages.HopRecords.FromString(data)) == tuple(records)


@given(st.lists(DROPS, max_size=4))
def test_drops_survive(drops: list[DropRecord]) -> None:
    data = drops_message(drops).SerializeToString()
    assert drops_of(messages.DropRecords.FromString(data)) == tuple(drops)


def test_hops_of_a_packet_share_their_flow() -> None:
    message = records_message([HOP, HOP, HOP])
    assert len(message.flows.addresses) == 2
    assert list(message.flow) == [0, 0, 0]
    first, second, third = records_of(message)
    assert first.flow is second.flow is third.flow


def test_a_figure_that_no_hop_says_takes_no_room() -> None:
    message = records_message([HOP, HOP])
    assert not message.hop_latency_ns
    assert list(message.hop_count) == [2, 2]


def spoiled(**columns: Any) -> messages.HopRecords:
    """Return a message of two hops with other columns."""
    message = records_message([HOP, HOP])
    for name, numbers in columns.items():
        message.ClearField(name)
        getattr(message, name).extend(numbers)
    return message


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"node_id": [1]}, "HopRecords.node_id has 1 entries for 2 rows"),
        ({"node_id": []}, "HopRecords.node_id has 0 entries for 2 rows"),
        ({"hop_latency_ns": [1, 2, 3]}, "HopRecords.hop_latency_ns has 3 entries for 2 rows"),
        ({"queue_id": [-1, -2]}, "HopRecords.queue_id: an entry is -2"),
        ({"kind": [1, 9]}, "this version does not know RecordKind 9"),
        ({"kind": [1, 0]}, "this version does not know RecordKind 0"),
        ({"flow": [0, 1]}, "HopRecords.flow: index 1 is not below 1"),
    ],
)
def test_rows_that_make_no_sense_are_refused(columns: dict[str, list[int]], problem: str) -> None:
    with pytest.raises(MessageError, match=f"^{problem}$"):
        records_of(spoiled(**columns))


@pytest.mark.parametrize(
    ("column", "numbers", "problem"),
    [
        ("addresses", [b"abc"], "an address of 3 bytes is neither IPv4 nor IPv6"),
        ("src", [2], "FlowKeys.src: index 2 is not below 2"),
        ("src_port", [65536], "FlowKeys.src_port: 65536 is more than 65535"),
        ("protocol", [256], "FlowKeys.protocol: 256 is more than 255"),
        ("dst_port", [1, 2], "FlowKeys.dst_port has 2 entries for 1 rows"),
    ],
)
def test_flows_that_make_no_sense_are_refused(column: str, numbers: list[Any], problem: str) -> None:
    message = records_message([HOP])
    message.flows.ClearField(column)
    getattr(message.flows, column).extend(numbers)
    with pytest.raises(MessageError, match=f"^{problem}$"):
        records_of(message)


def test_a_drop_of_no_flow_of_the_message_is_refused() -> None:
    for index, problem in ((1, "index 1 is not below"), (-2, "DropRecords.flow: an entry is -2")):
        message = drops_message([DROP])
        message.flow[0] = index
        with pytest.raises(MessageError, match=problem):
            drops_of(message)
