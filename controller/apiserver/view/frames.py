"""Frames of the page's stream: three bytes a directed link, as full states and differences; pure.

| byte | meaning |
| --- | --- |
| utilisation | 0 to 250: share of the rate times 250; 251: unknown; 254: the link is down; 255: no telemetry |
| delay | above the idle link's, for a frame of 1,500 bytes: 0 below 1 us, v: 2^((v-1)/8) us; 255: unknown |
| loss | 0: none; v: 2^((v-254)/8) of the frames; 255: unknown |
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

UNKNOWN_UTILISATION: Final = 251
DOWN: Final = 254
SILENT: Final = 255
UNKNOWN: Final = 255
_LEVEL: Final = 1
"""Level of zlib: a second's state of 20,000 links in 5 ms, a third of its size; higher levels gain little."""
_HEAD: Final = struct.Struct(">IB")
_TIME: Final = struct.Struct(">Q")


class Frame(IntEnum):
    """Types of frames."""

    HELLO = 1
    TOPOLOGY = 2
    FULL = 3
    DIFFERENCE = 4
    EVENTS = 5
    HEARTBEAT = 6
    MOVES = 7
    NOTES = 8


def json_frame(kind: Frame, value: Any) -> bytes:  # noqa: ANN401 - whatever JSON has
    """Return a frame with a JSON value."""
    body = msgspec.json.encode(value)
    return _HEAD.pack(1 + len(body), kind) + body


def full(time_ns: int, state: Bytes) -> bytes:
    """Return the frame of a whole state (3, L)."""
    return _packed(Frame.FULL, time_ns, state)


def difference(time_ns: int, state: Bytes, before: Bytes) -> bytes:
    """Return the frame of what has changed since a state of the same shape."""
    return _packed(Frame.DIFFERENCE, time_ns, state - before)  # modulo 256


def _packed(kind: Frame, time_ns: int, state: Bytes) -> bytes:
    body = _TIME.pack(time_ns) + zlib.compress(state.tobytes(), _LEVEL)
    return _HEAD.pack(1 + len(body), kind) + body


def utilisation_bytes(shares: Sequence[float] | NDArray[np.float64]) -> Bytes:
    """Return the bytes of shares of rates; NaN: unknown."""
    values = np.asarray(shares, dtype=np.float64)
    known = np.clip(np.rint(250 * np.nan_to_num(values)), 0, 250).astype(np.uint8)
    return np.where(np.isnan(values), np.uint8(UNKNOWN_UTILISATION), known)


def delay_bytes(excess_ns: Sequence[float] | NDArray[np.float64]) -> Bytes:
    """Return the bytes of delays above propagation; NaN: unknown."""
    values = np.asarray(excess_ns, dtype=np.float64)
    microseconds = np.maximum(np.nan_to_num(values), 0.0) / 1000
    octaves = np.log2(np.maximum(microseconds, 1.0))
    code = np.clip(np.rint(8 * octaves) + 1, 1, 254).astype(np.uint8)
    code = np.where(microseconds < 1.0, np.uint8(0), code)
    return np.where(np.isnan(values), np.uint8(UNKNOWN), code)


def loss_bytes(shares: Sequence[float] | NDArray[np.float64]) -> Bytes:
    """Return the bytes of shares of lost frames; NaN: unknown."""
    values = np.asarray(shares, dtype=np.float64)
    lost = np.clip(np.nan_to_num(values), 0.0, 1.0)
    least = 2.0 ** ((1 - 254) / 8)
    code = np.clip(np.rint(8 * np.log2(np.maximum(lost, least))) + 254, 1, 254).astype(np.uint8)
    code = np.where(lost <= 0.0, np.uint8(0), code)
    return np.where(np.isnan(values), np.uint8(UNKNOWN), code)
