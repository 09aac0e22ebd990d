"""Records of reports as messages: hops of measured packets, and packets that switches dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collectors.feed import records_pb2 as messages
from collectors.feed.columns import UNKNOWN, Columns, Enumeration
from collectors.feed.keys import flows_in, flows_out, pick
from collectors.record_columns import RecordColumns
from collectors.values import DropRecord, HopRecord, RecordKind
from dataplane.rpc.errors import MessageError

_HOPS: Final = Columns(HopRecord, messages.HopRecords, others=("flow",))
_KINDS: Final = Enumeration(RecordKind, messages.RecordKind.DESCRIPTOR)
_NUMBERS: Final = {int(kind): number for kind, number in _KINDS.numbers.items()}
_DROPS: Final = Columns(DropRecord, messages.DropRecords, others=("flow",))


def records_message(records: Sequence[HopRecord]) -> messages.HopRecords:
    """Return hop records as a message."""
    return record_columns_message(RecordColumns.of(records))


def records_of(message: messages.HopRecords) -> tuple[HopRecord, ...]:
    """Return the hop records of a message; raise MessageError."""
    return record_columns_of(message).records()


def record_columns_message(columns: RecordColumns) -> messages.HopRecords:
    """Return columns of hop records as a message."""
    message = messages.HopRecords()
    flows_out(message.flows, columns.flows)
    message.flow.extend(columns.flow)
    _HOPS.write_numbers(message, {**columns.columns, "kind": [_NUMBERS[kind] for kind in columns.columns["kind"]]})
    return message


def record_columns_of(message: messages.HopRecords) -> RecordColumns:
    """Return the columns of hop records of a message; raise MessageError."""
    flows, flow = flows_in(message.flows), message.flow[:]
    if flow and max(flow) >= len(flows):
        raise MessageError(f"HopRecords.flow: index {max(flow)} is not below {len(flows)}")
    columns = dict(_HOPS.read_numbers(message, len(flow)))
    kinds = {number: int(_KINDS.member(number)) for number in set(columns["kind"])}
    columns["kind"] = [kinds[number] for number in columns["kind"]]
    return RecordColumns(flows, flow, columns)


def drops_message(drops: Sequence[DropRecord]) -> messages.DropRecords:
    """Return drop records as a message."""
    message = messages.DropRecords()
    flows = [drop.flow for drop in drops if drop.flow is not None]
    flows_out(message.flows, flows)
    places = iter(range(len(flows)))
    message.flow.extend([UNKNOWN if drop.flow is None else next(places) for drop in drops])
    _DROPS.write(message, drops)
    return message


def drops_of(message: messages.DropRecords) -> tuple[DropRecord, ...]:
    """Return the drop records of a message; raise MessageError."""
    least = min(message.flow, default=0)
    if least < UNKNOWN:
        raise MessageError(f"DropRecords.flow: an entry is {least}")
    flows_present = iter(
        pick("DropRecords.flow", flows_in(message.flows), [index for index in message.flow if index >= 0])
    )
    flows = [None if index == UNKNOWN else next(flows_present) for index in message.flow]
    return tuple(_DROPS.read(message, len(flows), flow=flows))
