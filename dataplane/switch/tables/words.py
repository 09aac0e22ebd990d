"""Words of memory, all zero, that compiled code reads and writes too."""

from __future__ import annotations

import ctypes
import mmap
from array import array
from typing import Final, TypeAlias

_WORD_BYTES: Final = 8
_MAPPED_BYTES: Final = 16 * 1024
"""From this size on, memory is mapped, so that pages which nothing has written take none: most large registers of most
switches stay empty."""

Words: TypeAlias = "memoryview | array[int]"
"""64-bit words: a view with format "Q", or an array with this type code."""


def zeroed_words(count: int) -> memoryview:
    """Return `count` words, all zero, as a view with format "Q"."""
    if count * _WORD_BYTES < _MAPPED_BYTES:
        return memoryview(array("Q", bytes(count * _WORD_BYTES)))
    return memoryview(mmap.mmap(-1, count * _WORD_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)).cast("Q")


def address_of(words: Words) -> int:
    """Return the address of the first word, 0 without one; valid while the words live."""
    if isinstance(words, array):
        return words.buffer_info()[0]
    return ctypes.addressof(ctypes.c_char.from_buffer(words)) if words.nbytes else 0
