"""Messages to the collector: the controller's reports of link conditions, the path server's of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from collectors.feed import feed_pb2
from collectors.feed import links_pb2 as messages
from collectors.feed.columns import Columns, put, take
from collectors.feed.keys import links_in, links_out
from collectors.values import FlowMove, LinkStatus
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey

MAX_CAUSE: Final = 500
"""Most characters of a dead link's cause."""
MOST_MOVES: Final = 1000

_STATUSES: Final = Columns(LinkStatus, messages.LinkStatuses)
_MOVE: Final = ("time_ns", "src_host", "dst_host", "protocol", "src_port", "dst_port", "reason", "gain_ns")


def statuses_message(statuses: Mapping[LinkKey, LinkStatus]) -> messages.LinkStatuses:
    """Return links' statuses as a message; causes are cut to `MAX_CAUSE` characters."""
    message = messages.LinkStatuses()
    write_statuses(message, statuses)
    return message


def write_statuses(message: messages.LinkStatuses, statuses: Mapping[LinkKey, LinkStatus]) -> None:
    """Put links' statuses into a message; causes are cut to `MAX_CAUSE` characters."""
    links_out(message.links, statuses)
    _STATUSES.write(message, [replace(status, cause=status.cause[:MAX_CAUSE]) for status in statuses.values()])


def statuses_of(message: messages.LinkStatuses) -> dict[LinkKey, LinkStatus]:
    """Return the links' statuses of a message; raise MessageError."""
    links = links_in(message.links)
    longest = max(map(len, message.cause), default=0)
    if longest > MAX_CAUSE:
        raise MessageError(f"LinkStatuses.cause has {longest} characters; at most {MAX_CAUSE} are accepted")
    return dict(zip(links, _STATUSES.read(message, len(links)), strict=True))


def moves_message(moves: Sequence[FlowMove]) -> feed_pb2.FlowMoves:
    """Return moves as a message."""
    message = feed_pb2.FlowMoves()
    for move in moves:
        put(message.moves.add(old_path=move.old_path, new_path=move.new_path), move, _MOVE)
    return message


def moves_of(message: feed_pb2.FlowMoves) -> tuple[FlowMove, ...]:
    """Return the moves of a message; raise MessageError for too many."""
    if len(message.moves) > MOST_MOVES:
        raise MessageError(f"{len(message.moves)} moves are more than {MOST_MOVES}")
    return tuple(map(_move_of, message.moves))


def _move_of(message: feed_pb2.FlowMove) -> FlowMove:
    time_ns, src, dst, protocol, src_port, dst_port, reason, gain_ns = take(message, _MOVE)
    paths = tuple(message.old_path), tuple(message.new_path)
    return FlowMove(time_ns, src, dst, protocol, src_port, dst_port, *paths, reason, gain_ns)
