"""TCP options: MSS (RFC 9293), window scale and timestamps (RFC 7323), selective acknowledgments (RFC 2018).

Kind8 [Length8 Value]: end 0, no-operation 1 without length; MSS 2/4, scale 3/3, SACK permitted 4/2, SACK 5/2+8n,
timestamps 8/10. Other kinds are skipped by their length.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError

HEADER: Final = "tcp options"
MAX_SIZE: Final = 40
MAX_SHIFT: Final = 14
"""The largest window scale; a larger one means this (RFC 7323, section 2.3)."""
_END, _NO_OPERATION, _MSS, _SCALE, _SACK_PERMITTED, _SACK, _TIMESTAMPS = 0, 1, 2, 3, 4, 5, 8
_LENGTHS: Final = {_MSS: 4, _SCALE: 3, _SACK_PERMITTED: 2, _TIMESTAMPS: 10}
_BLOCK: Final = struct.Struct("!II")
_STAMPS: Final = struct.Struct("!BBII")


@dataclass(frozen=True, slots=True)
class TcpOptions:
    """Options of a segment; None for absent ones. `sack` holds half-open blocks."""

    mss: int | None = None
    window_scale: int | None = None
    sack_permitted: bool = False
    sack: tuple[tuple[int, int], ...] = ()
    timestamps: tuple[int, int] | None = None
    """TSval and TSecr."""

    def encode(self) -> bytes:
        """Return whole words, padded with no-operations in front; raise WireError for more than 40 bytes.

        SACK blocks without room are left out, the last ones first.
        """
        parts = []
        if self.mss is not None:
            parts.append(struct.pack("!BBH", _MSS, 4, self.mss))
        if self.sack_permitted:
            parts.append(bytes((_NO_OPERATION, _NO_OPERATION, _SACK_PERMITTED, 2)))
        if self.timestamps is not None:
            parts.append(bytes((_NO_OPERATION, _NO_OPERATION)) + _STAMPS.pack(_TIMESTAMPS, 10, *self.timestamps))
        if self.window_scale is not None:
            parts.append(bytes((_NO_OPERATION, _SCALE, 3, self.window_scale)))
        used = sum(map(len, parts))
        if self.sack:
            # The head takes 4 bytes: two no-operations, kind and length.
            blocks = self.sack[: (MAX_SIZE - used - 4) // _BLOCK.size]
            head = bytes((_NO_OPERATION, _NO_OPERATION, _SACK, 2 + _BLOCK.size * len(blocks)))
            parts.append(head + b"".join(_BLOCK.pack(*block) for block in blocks))
        return b"".join(parts)


def decode(data: bytes) -> TcpOptions:
    """Parse the bytes after a TCP header; raise WireError for an option of a wrong length."""
    if not data:
        return TcpOptions()
    mss = scale = stamps = None
    permitted = False
    sack: tuple[tuple[int, int], ...] = ()
    offset = 0
    while offset < len(data) and data[offset] != _END:
        kind = data[offset]
        if kind == _NO_OPERATION:
            offset += 1
            continue
        length = data[offset + 1] if offset + 1 < len(data) else 0
        _check(kind, length, len(data) - offset, offset)
        value = data[offset + 2 : offset + length]
        if kind == _MSS:
            mss = int.from_bytes(value, "big")
        elif kind == _SCALE:
            # A larger shift counts as 14 (RFC 7323, section 2.3).
            scale = min(value[0], MAX_SHIFT)
        elif kind == _SACK_PERMITTED:
            permitted = True
        elif kind == _SACK:
            sack = tuple((start, end) for start, end in _BLOCK.iter_unpack(value))
        elif kind == _TIMESTAMPS:
            stamps = int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big")
        offset += length
    return TcpOptions(mss, scale, permitted, sack, stamps)


def _check(kind: int, length: int, left: int, offset: int) -> None:
    if not 2 <= length <= left:
        raise WireError(HEADER, f"length {length} of option {kind} is not 2 to {left}", offset=offset)
    wrong = length != _LENGTHS.get(kind, length) or (kind == _SACK and (length - 2) % _BLOCK.size)
    if wrong:
        raise WireError(HEADER, f"option {kind} does not have {length} bytes", offset=offset)
