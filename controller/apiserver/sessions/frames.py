"""Frames of a session, in both directions.

0        1                    5
+--------+--------------------+-----------------+
| stream | length, big-endian | payload         |
+--------+--------------------+-----------------+
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from controller.apiserver.sessions.values import TerminalSize
from controller.common.errors import InvalidError

_HEAD: Final = struct.Struct("!BI")
_SIZE: Final = struct.Struct("!HH")
_CODE: Final = struct.Struct("!i")

MOST_BYTES: Final = 65_536
"""Limit of a payload."""
MEDIA_TYPE: Final = "application/vnd.millrace.frames"


class Stream(IntEnum):
    """Type of a frame."""

    KEEP_ALIVE = 0
    """Shows that the sender is alive; carries nothing."""
    STDIN = 1
    STDOUT = 2
    STDERR = 3
    RESIZE = 4
    """Rows and columns of the user's terminal, 16 bits each."""
    END_OF_INPUT = 5
    EXIT = 6
    """The end: the command's exit status, signed 32 bits; 0 for a log."""
    ERROR = 7
    """The end: one line with the error."""


_KNOWN: Final = frozenset(map(int, Stream))
LAST: Final = (Stream.EXIT, Stream.ERROR)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a session."""

    stream: Stream
    payload: bytes = b""

    def __post_init__(self) -> None:
        if len(self.payload) > MOST_BYTES:
            raise InvalidError(f"a frame may have at most {MOST_BYTES} bytes, not {len(self.payload)}")

    @property
    def is_last(self) -> bool:
        """True if nothing follows."""
        return self.stream in LAST

    def encode(self) -> bytes:
        """Encode the frame."""
        return _HEAD.pack(self.stream, len(self.payload)) + self.payload


KEEP_ALIVE: Final = Frame(Stream.KEEP_ALIVE)


class FrameDecoder:
    """Decodes frames from a byte stream, however it is split; buffers at most one frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames completed by `data`; raise InvalidError for invalid ones."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= _HEAD.size:
                number, length = _HEAD.unpack_from(self._buffer, position)
                if length > MOST_BYTES or number not in _KNOWN:
                    raise InvalidError(f"not a frame: stream {number}, {length} bytes")
                begin = position + _HEAD.size
                if len(self._buffer) < begin + length:
                    return
                position = begin + length
                yield Frame(Stream(number), bytes(self._buffer[begin:position]))
        finally:
            del self._buffer[:position]

    @property
    def is_whole(self) -> bool:
        """True if no partial frame is buffered."""
        return not self._buffer


def data_frames(stream: Stream, data: bytes) -> Iterator[Frame]:
    """Yield bytes as frames within the size limit."""
    for begin in range(0, len(data), MOST_BYTES):
        yield Frame(stream, data[begin : begin + MOST_BYTES])


def exit_frame(code: int) -> Frame:
    """Return the final frame of a command that exited; for a signal 128 + its number."""
    return Frame(Stream.EXIT, _CODE.pack(code))


def exit_code_of(frame: Frame) -> int:
    """Return the exit status in a frame; raise InvalidError."""
    code: int = _fields(_CODE, frame)[0]
    return code


def error_frame(line: str) -> Frame:
    """Return the final frame of a failed session, with one line."""
    return Frame(Stream.ERROR, " ".join(line.split()).encode()[:4096])


def error_of(frame: Frame) -> str:
    """Return the line of an error frame."""
    return frame.payload.decode(errors="replace")


def resize_frame(size: TerminalSize) -> Frame:
    """Return a frame with the new size of the user's terminal."""
    return Frame(Stream.RESIZE, _SIZE.pack(size.rows, size.columns))


def resize_of(frame: Frame) -> TerminalSize:
    """Return the size in a frame; raise InvalidError."""
    rows, columns = _fields(_SIZE, frame)
    return TerminalSize(rows=max(rows, 1), columns=max(columns, 1))


def _fields(layout: struct.Struct, frame: Frame) -> tuple[int, ...]:
    if len(frame.payload) != layout.size:
        raise InvalidError(f"a frame {frame.stream.name} has {layout.size} bytes, not {len(frame.payload)}")
    return layout.unpack(frame.payload)
