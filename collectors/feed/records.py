"""Records of reports as messages: hops of measured packets, and packets that switches dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collectors.feed import records_pb2 as messages
from collectors.feed.columns import UNKNOWN, Columns
from collectors.feed.keys import flows_in, flows_out, pick
from collectors.values import DropRecord, HopRecord
from dataplane.rpc.errors import MessageError

_HOPS: Final = Columns(HopRecord, messages.HopRecords, others=("flow",))
_DROPS: Final = Columns(DropRecord, messages.DropRecords, others=("flow",))


def records_message(records: Sequence[HopRecord]) -> messages.HopRecords:
    """Return hop records as a message."""
    message = messages.HopRecords()
    # By identity: the hops of a packet share one object.
    flows = {id(record.flow): record.flow for record in records}
    places = {one: place for place, one in enumerate(flows)}
    flows_out(message.flows, list(flows.values()))
    message.flow.extend([places[id(record.flow)] for record in records])
    _HOPS.write(message, records)
    return message


def records_of(message: messages.HopRecords) -> tuple[HopRecord, ...]:
    """Return the hop records of a message; raise MessageError."""
    flows = pick("HopRecords.flow", flows_in(message.flows), message.flow)
    return tuple(_HOPS.read(message, len(flows), flow=flows))


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
    known = iter(pick("DropRecords.flow", flows_in(message.flows), [place for place in message.flow if place >= 0]))
    flows = [None if place == UNKNOWN else next(known) for place in message.flow]
    return tuple(_DROPS.read(message, len(flows), flow=flows))
