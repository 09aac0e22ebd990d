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
"""Of a payload."""
MEDIA_TYPE: Final = "application/vnd.millrace.frames"


class Stream(IntEnum):
    """What a frame is."""

    KEEP_ALIVE = 0
    """Says that there is somebody, and nothing else."""
    STDIN = 1
    STDOUT = 2
    STDERR = 3
    RESIZE = 4
    """Rows and columns of the user's terminal, 16 bits each."""
    END_OF_INPUT = 5
    EXIT = 6
    """The end: the command's exit status, 32 bits with sign; of a log 0."""
    ERROR = 7
    """The end: a line that says what went wrong."""


_KNOWN: Final = frozenset(map(int, Stream))
LAST: Final = (Stream.EXIT, Stream.ERROR)


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of a session."""

    stream: Stream
    payload: bytes = b""

    def __post_init__(self) -> None:
        if len(self.payload) > MOST_BYTES:
            raise InvalidError(f"a frame has at most {MOST_BYTES} bytes, not {len(self.payload)}")

    @property
    def is_last(self) -> bool:
        """Whether nothing comes after it."""
        return self.stream in LAST

    def encode(self) -> bytes:
        """Return it as it is sent."""
        return _HEAD.pack(self.stream, len(self.payload)) + self.payload


KEEP_ALIVE: Final = Frame(Stream.KEEP_ALIVE)


class FrameDecoder:
    """Makes frames of bytes, however they are cut; holds one frame at most."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now; raise InvalidError for what is none."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= _HEAD.size:
                number, length = _HEAD.unpack_from(self._buffer, position)
                if length > MOST_BYTES or number not in _KNOWN:
                    raise InvalidError(f"this is no frame: stream {number}, {length} bytes")
                begin = position + _HEAD.size
                if len(self._buffer) < begin + length:
                    return
                position = begin + length
                yield Frame(Stream(number), bytes(self._buffer[begin:position]))
        finally:
            del self._buffer[:position]

    @property
    def is_whole(self) -> bool:
        """Whether the last frame has come whole."""
        return not self._buffer


def data_frames(stream: Stream, data: bytes) -> Iterator[Frame]:
    """Yield bytes as frames, none too large."""
    for begin in range(0, len(data), MOST_BYTES):
        yield Frame(stream, data[begin : begin + MOST_BYTES])


def exit_frame(code: int) -> Frame:
    """Return the end of a command that has exited; of one that a signal has killed 128 + its number."""
    return Frame(Stream.EXIT, _CODE.pack(code))


def exit_code_of(frame: Frame) -> int:
    """Return the exit status that a frame says; raise InvalidError."""
    code: int = _fields(_CODE, frame)[0]
    return code


def error_frame(line: str) -> Frame:
    """Return the end of a session that has failed, in one line."""
    return Frame(Stream.ERROR, " ".join(line.split()).encode()[:4096])


def error_of(frame: Frame) -> str:
    """Return the line of an error frame."""
    return frame.payload.decode(errors="replace")


def resize_frame(size: TerminalSize) -> Frame:
    """Return what says that the user's terminal is of a size now."""
    return Frame(Stream.RESIZE, _SIZE.pack(size.rows, size.columns))


def resize_of(frame: Frame) -> TerminalSize:
    """Return the size that a frame says; raise InvalidError."""
    rows, columns = _fields(_SIZE, frame)
    return TerminalSize(rows=max(rows, 1), columns=max(columns, 1))


def _fields(layout: struct.Struct, frame: Frame) -> tuple[int, ...]:
    if len(frame.payload) != layout.size:
        raise InvalidError(f"a frame {frame.stream.name} has {layout.size} bytes, not {len(frame.payload)}")
    return layout.unpack(frame.payload)
