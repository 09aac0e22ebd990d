"""Distributes the stream's frames: encoded once, and a viewer that lags gets the next full state, never a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from controller.apiserver.view import frames
from controller.apiserver.view.frames import Frame
from controller.apiserver.view.state import NetworkView
from controller.common.errors import UnavailableError

VERSION: Final = 1
_HEARTBEAT_S: Final = 1.0
_WHOLE: Final = (Frame.EVENTS, Frame.MOVES, Frame.NOTES, Frame.HEARTBEAT)
"""Frames that tell everything of their kind: the newest one replaces an unsent one."""


class _Viewer:
    """Frames that one viewer has not been sent yet: at most one of each kind."""

    def __init__(self) -> None:
        self.pending: dict[Frame, bytes] = {}
        self.changed = asyncio.Event()

    def add(self, kind: Frame, frame: bytes) -> None:
        if kind is Frame.DIFFERENCE and (Frame.DIFFERENCE in self.pending or Frame.FULL in self.pending):
            # It has not read the last one: a difference to that would be of no use.
            self.pending.pop(Frame.DIFFERENCE, None)
            self.pending[Frame.FULL] = b""
        else:
            self.pending[kind] = frame
        self.changed.set()


class Broadcast:
    """Frames of a view to any number of viewers. Use in one event loop."""

    def __init__(self, view: NetworkView | None, build: str, now_ns: Callable[[], int], *, most: int) -> None:
        self._view, self._build, self._now_ns, self._most = view, build, now_ns, most
        self._viewers: set[_Viewer] = set()
        self._full: tuple[int, bytes] | None = None
        if view is not None:
            view.on_frame = self._publish
            view.viewers = lambda: self.viewers

    @property
    def viewers(self) -> int:
        """Number of open streams."""
        return len(self._viewers)

    def open(self) -> AsyncGenerator[bytes, None]:
        """Return a viewer's stream; raise UnavailableError if there are too many."""
        if len(self._viewers) >= self._most:
            raise UnavailableError(f"the page has reached its limit of {self._most} viewers (view.viewers)")
        return self._frames(_Viewer())

    async def run(self) -> None:
        """Send a heartbeat each second, until cancelled."""
        while True:
            await asyncio.sleep(_HEARTBEAT_S)
            if self._viewers:
                self._publish(Frame.HEARTBEAT, self._heartbeat())

    async def _frames(self, viewer: _Viewer) -> AsyncGenerator[bytes, None]:
        # Not before the first frame is asked for: a stream that is never read would stay for ever.
        self._viewers.add(viewer)
        try:
            yield self._first()
            while True:
                await viewer.changed.wait()
                viewer.changed.clear()
                pending, viewer.pending = viewer.pending, {}
                if Frame.FULL in pending:
                    pending[Frame.FULL] = self._whole()
                yield b"".join(pending.values())
        finally:
            self._viewers.discard(viewer)

    def _publish(self, kind: Frame, frame: bytes) -> None:
        for viewer in self._viewers:
            viewer.add(kind, frame)

    def _first(self) -> bytes:
        hello = {"version": VERSION, "build": self._build, "mode": "live", "now_ns": self._now_ns()}
        parts = [frames.json_frame(Frame.HELLO, hello)]
        if self._view is not None:
            view = self._view
            parts += [view.topology_frame, self._whole(), view.notes_frame(), view.events_frame(), view.moves_frame()]
        return b"".join((*parts, self._heartbeat()))

    def _whole(self) -> bytes:
        """Return the full state, encoded once for all who need it."""
        view = self._view
        assert view is not None, "full states are of a network"
        if self._full is None or self._full[0] != view.version:
            self._full = view.version, view.full_frame()
        return self._full[1]

    def _heartbeat(self) -> bytes:
        if self._view is not None:
            return self._view.heartbeat_frame()
        return frames.json_frame(
            Frame.HEARTBEAT, {"now_ns": self._now_ns(), "sources": [], "flows": {"shown": 0, "of": 0}}
        )
