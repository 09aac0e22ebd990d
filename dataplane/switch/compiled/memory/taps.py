"""Copies of frames for a tracer: byte patterns of the wanted frames, and how many are wanted."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from dataplane.native import Array, Struct, as_u64, kernel, pointer_to, u8, u64
from dataplane.switch.compiled.memory.rings import PacketRing
from dataplane.switch.tracing.live.prefilter import Alternative

ANY_PORT = (1 << 32) - 1
OFFSET_SHIFT, NOT_SHIFT, MASK_SHIFT, BYTE = 17, 16, 8, 0xFF


class Tap(Struct):
    """Python's selection of frames to see.

    `words` holds for each alternative its port or ANY_PORT, a number of comparisons, and for each of these: offset of a
    byte, whether it must not match, mask and value, in one word. Python writes it while the workers are paused,
    `allowed` at any time.
    """

    ring: PacketRing
    alternatives: u64
    words: Array[u64]
    allowed: u64  # frames that may be copied, counted from the start
    taken: u64
    passed_over: u64  # matching frames that were not copied


@kernel
def fits(tap: Tap, port: u64, data: Array[u8], length: u64) -> bool:
    """Return whether a frame fits one of the alternatives."""
    position: u64 = 0
    for _ in range(tap.alternatives):
        holds = tap.words[position] == ANY_PORT or tap.words[position] == port
        comparisons = tap.words[position + 1]
        position += 2
        if holds:
            for index in range(comparisons):
                word = tap.words[position + index]
                at = word >> OFFSET_SHIFT
                is_so = False
                if at < length:
                    is_so = as_u64(data[at]) & (word >> MASK_SHIFT & BYTE) == word & BYTE
                if is_so == (word >> NOT_SHIFT & 1 != 0):
                    holds = False
                    break
        if holds:
            return True
        position += comparisons
    return False


def _word(offset: int, mask: int, value: int, wanted: bool) -> int:
    return offset << OFFSET_SHIFT | (not wanted) << NOT_SHIFT | mask << MASK_SHIFT | value


def set_alternatives(tap: Tap, alternatives: Sequence[Alternative]) -> None:
    """Set the alternatives that workers look for; only while they are paused."""
    words: list[int] = []
    for alternative in alternatives:
        words += (ANY_PORT if alternative.port is None else alternative.port, len(alternative.checks))
        words += [_word(*check) for check in sorted(alternative.checks)]
    tap.words = pointer_to((ctypes.c_uint64 * max(1, len(words)))(*words))
    tap.alternatives = len(alternatives)
