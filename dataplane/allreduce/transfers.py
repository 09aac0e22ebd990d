"""Transfers between a job's main server and its workers, each a fixed sequence of an engine's items.

Both begin with a call: an item of zeros to which all workers contribute, so that nobody needs older results, and which
tells the server where it is in the job. Then follow segments of at most a window, so that each part can repeat what a
restarted switch has lost. The first segment is a header of one block, with the whole value if that fits.

`distribute`: the server sends a segment, each packet once, and the switches copy it; all workers contribute to an item
of zeros when they have it, whose result lets the server continue. `deliver`: one worker contributes a segment, all
others zeros, and the server, which reads the result, distributes an item of zeros when it has it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine
from dataplane.allreduce.formats import BLOCK
from dataplane.allreduce.schedule import GROUP
from dataplane.allreduce.turns import Poll
from dataplane.errors import AllReduceError

Bytes = NDArray[np.uint8]
Words = NDArray[np.int32]

LEAST_WINDOW: Final = 4
_HEADER: Final = struct.Struct("<QII")
"""Length, CRC-32, and a mark that the giver adds: it is missing if the giver has left."""
_INLINE: Final = BLOCK * 4 - _HEADER.size
_MARK: Final = 1
_NOTHING: Final = np.zeros(1, np.int32)
"""Zero blocks are not sent: a single item, which shows that they are zero."""


def distribute(engine: Engine, data: Bytes, poll: Poll | None = None) -> None:
    """Send bytes to all workers, as the main server; return when all have them. Raises AllReduceError."""
    _check_window(engine)
    engine.meet(poll=poll)
    for segment in (_header_of(data), *_segments(engine, data)):
        engine.distribute(segment, poll=poll)
        engine.read(_NOTHING.copy(), poll=poll)


def receive(engine: Engine, poll: Poll | None = None) -> Bytes:
    """Return the bytes that the main server distributes, as each worker does. Raises AllReduceError."""
    _check_window(engine)
    _call(engine, poll)

    def read(segment: Words) -> None:
        engine.read(segment, distributed=True, poll=poll)
        engine.all_reduce(_NOTHING, _NOTHING.copy(), final=True, poll=poll)

    data = _assemble(engine, read)
    if data is None:
        raise AllReduceError(f"job {engine.settings.job}: the main server takes a value, and does not distribute one")
    return data


def deliver(engine: Engine, data: Bytes | None, givers: Sequence[bool], poll: Poll | None = None) -> None:
    """Send a worker's bytes to the main server; return when it has them. Raises AllReduceError.

    `givers`: for each worker that may give its bytes, in the same order at all, whether it is this one. The next one
    takes over if one is lost. `data` may be None at a worker that is none of them.
    """
    _check_window(engine)
    _call(engine, poll)
    # Without newer items the server can ask for the call, in case its copy is lost.
    _hear(engine, poll)

    for is_giver in givers:
        given = _parts(engine, data) if is_giver and data is not None else None

        def read(segment: Words, given: Iterator[Words] | None = given) -> None:
            values = np.zeros_like(segment) if given is None else next(given)
            engine.all_reduce(values, segment, final=True, poll=poll)
            _hear(engine, poll)

        if _assemble(engine, read) is not None:
            return
    raise AllReduceError(f"job {engine.settings.job}: no worker is left that has what is to be delivered")


def take(engine: Engine, givers: int, poll: Poll | None = None) -> Bytes:
    """Return the bytes that the workers deliver, as the main server; at most `givers` workers give them in turn."""
    _check_window(engine)
    engine.meet(poll=poll)
    engine.distribute(_NOTHING, poll=poll)

    def read(segment: Words) -> None:
        engine.read(segment, poll=poll)
        engine.distribute(_NOTHING, poll=poll)

    for _ in range(givers):
        data = _assemble(engine, read)
        if data is not None:
            return data
    raise AllReduceError(f"job {engine.settings.job}: no worker is left that has what is to be delivered")


def segment_words(window: int) -> int:
    """Return the values of a segment: its blocks, their exponents and the item that follows fit a window."""
    return (window - 1 - -(-(window - 1) // (GROUP + 1))) * BLOCK


def _check_window(engine: Engine) -> None:
    if engine.settings.window < LEAST_WINDOW:
        raise AllReduceError(
            f"job {engine.settings.job}: a window of {engine.settings.window} items is too small for a main server: "
            f"it takes {LEAST_WINDOW}"
        )


def _call(engine: Engine, poll: Poll | None) -> None:
    engine.all_reduce(_NOTHING, _NOTHING.copy(), final=True, call=True, poll=poll)


def _hear(engine: Engine, poll: Poll | None) -> None:
    """Wait for the main server's acknowledgement."""
    heard = _NOTHING.copy()
    engine.read(heard, distributed=True, poll=poll)
    if heard.any():
        raise AllReduceError(f"job {engine.settings.job}: the main server distributes a value, and does not take one")


def _assemble(engine: Engine, read: Callable[[Words], None]) -> Bytes | None:
    """Read header and segments; return the bytes, None if the giver was lost, whose values are missing."""
    header = np.zeros(BLOCK, np.int32)
    read(header)
    length, checksum, mark = _HEADER.unpack(header.tobytes()[: _HEADER.size])
    if mark != _MARK:
        return None
    data: Bytes = np.zeros(length, np.uint8)
    if length <= _INLINE:
        data[:] = np.frombuffer(header.tobytes(), np.uint8)[_HEADER.size :][:length]
        return data
    step = segment_words(engine.settings.window) * 4
    for at in range(0, length, step):
        part = data[at : at + step]
        words = np.zeros(-(-part.size // 4), np.int32)
        read(words)
        part[:] = words.view(np.uint8)[: part.size]
    # A giver that is lost between two segments leaves zeros.
    return data if zlib.crc32(data.data) == checksum else None


def _parts(engine: Engine, data: Bytes) -> Iterator[Words]:
    yield _header_of(data)
    yield from _segments(engine, data)


def _header_of(data: Bytes) -> Words:
    header = _HEADER.pack(data.size, zlib.crc32(data.data), _MARK)
    inline = data.tobytes() if data.size <= _INLINE else b""
    words: Words = np.frombuffer((header + inline).ljust(BLOCK * 4, b"\0"), np.int32)
    return words


def _segments(engine: Engine, data: Bytes) -> Iterator[Words]:
    if data.size <= _INLINE:
        return
    step = segment_words(engine.settings.window) * 4
    for at in range(0, data.size, step):
        part = data[at : at + step]
        words: Words = np.zeros(-(-part.size // 4), np.int32)
        words.view(np.uint8)[: part.size] = part
        yield words


def flattened(values: bytes | NDArray[Any]) -> Bytes:
    """Return the bytes of a value to be sent, in the order of its memory."""
    if isinstance(values, np.ndarray):
        flat: Bytes = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return flat
    return np.frombuffer(values, np.uint8)
