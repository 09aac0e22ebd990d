"""Decisions about flows' paths as messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from collectors.feed import feed_pb2
from collectors.feed.columns import put, take
from collectors.values import FlowMove
from dataplane.rpc.errors import MessageError

MOST_MOVES: Final = 1000
_FIELDS: Final = ("time_ns", "src_host", "dst_host", "protocol", "src_port", "dst_port", "reason", "gain_ns")


def moves_message(moves: Sequence[FlowMove]) -> feed_pb2.FlowMoves:
    """Return moves as a message."""
    message = feed_pb2.FlowMoves()
    for move in moves:
        put(message.moves.add(old_path=move.old_path, new_path=move.new_path), move, _FIELDS)
    return message


def moves_of(message: feed_pb2.FlowMoves) -> tuple[FlowMove, ...]:
    """Return the moves of a message; raise MessageError for too many."""
    if len(message.moves) > MOST_MOVES:
        raise MessageError(f"{len(message.moves)} moves are more than {MOST_MOVES}")
    return tuple(map(_move_of, message.moves))


def _move_of(message: feed_pb2.FlowMove) -> FlowMove:
    *known, reason, gain_ns = take(message, _FIELDS)
    return FlowMove(*known, tuple(message.old_path), tuple(message.new_path), reason, gain_ns)
