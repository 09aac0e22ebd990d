"""Signs that the network has changed: as messages, and shared among their watchers."""

from __future__ import annotations

import math
from collections.abc import Callable

from collectors.feed import feed_pb2 as messages
from collectors.feed.keys import flows_in, flows_out, keyed
from collectors.values import NetworkSignals
from dataplane.rpc.errors import MessageError


class SignalBoard:
    """Takes a collector's signs, which are kept once, and distributes them to all watchers."""

    def __init__(self, take: Callable[[], NetworkSignals]) -> None:
        self._take = take
        self._watches: list[SignalWatch] = []

    def watch(self) -> SignalWatch:
        """Return a new watch, for which all signs until now are past."""
        self.collect()
        watch = SignalWatch(self)
        self._watches.append(watch)
        return watch

    def collect(self) -> None:
        """Take the collector's signs."""
        taken = self._take()
        for watch in self._watches:
            watch.add(taken)

    def leave(self, watch: SignalWatch) -> None:
        """End a watch."""
        self._watches.remove(watch)


class SignalWatch:
    """Signals that one watcher has not taken yet."""

    def __init__(self, board: SignalBoard) -> None:
        self._board = board
        self._waiting = NetworkSignals()

    def add(self, signals: NetworkSignals) -> None:
        """Add newer signs."""
        self._waiting = merged(self._waiting, signals)

    def has_queue(self, frames: int) -> bool:
        """Return whether a queue of this length has been noted since the last call of `take`."""
        self._board.collect()
        return (self._waiting.queue_frames or 0) >= frames

    def take(self) -> NetworkSignals:
        """Return the signs since the last call."""
        self._board.collect()
        taken, self._waiting = self._waiting, NetworkSignals()
        return taken

    def close(self) -> None:
        """End the watch."""
        self._board.leave(self)


def merged(earlier: NetworkSignals, later: NetworkSignals) -> NetworkSignals:
    """Return the combined signs of two consecutive spans of time."""
    frames = [span.queue_frames for span in (earlier, later) if span.queue_frames is not None]
    grown = dict(earlier.grown)
    for flow, more_hz in later.grown.items():
        grown[flow] = grown.get(flow, 0.0) + more_hz
    return NetworkSignals(
        max(frames, default=None),
        earlier.queue_reported or later.queue_reported,
        earlier.queue_full or later.queue_full,
        grown,
        earlier.unlisted + later.unlisted,
    )


def tells(signals: NetworkSignals, queue_frames: float) -> bool:
    """Return whether there is any sign, given how many frames make a queue."""
    has_queue = signals.queue_frames is not None and signals.queue_frames >= queue_frames
    return has_queue or signals.queue_reported or signals.queue_full or bool(signals.grown)


def signals_message(signals: NetworkSignals) -> messages.Signals:
    """Return signs as a message."""
    message = messages.Signals(
        queue_frames=signals.queue_frames,
        queue_reported=signals.queue_reported,
        queue_full=signals.queue_full,
        more_hz=signals.grown.values(),
        unlisted=signals.unlisted,
    )
    flows_out(message.grown, list(signals.grown))
    return message


def signals_of(message: messages.Signals) -> NetworkSignals:
    """Return the signs of a message; raise MessageError for columns that do not fit and impossible figures."""
    flows = flows_in(message.grown)
    if len(flows) != len(message.more_hz):
        raise MessageError(f"Signals.more_hz has {len(message.more_hz)} entries for {len(flows)} rows")
    odd = next((more for more in message.more_hz if not 0 <= more < math.inf), None)
    if odd is not None:
        raise MessageError(f"Signals.more_hz: an entry is {odd}")
    return NetworkSignals(
        message.queue_frames if message.HasField("queue_frames") else None,
        message.queue_reported,
        message.queue_full,
        keyed("flow", flows, list(message.more_hz)),
        message.unlisted,
    )
