"""Descriptions of decoders for the suite that covers them all: name, valid bytes, kinds of refusal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dataplane.errors import WireError

T = TypeVar("T")

DEEP = b"[" * 4_000
DEEP_KEY = b'{"x": ' + DEEP
NO_TEXT = b'"\xff"'
"""JSON that nests too deep, at the top and in an unused field, and text that is not UTF-8."""
_MOST_PLACES = 160
"""Number of places, spread evenly, at which a longer golden is cut and changed."""


@dataclass(frozen=True)
class Decoder:
    """A decoder, by its function's dotted name, and bytes that it takes.

    `read` returns None or raises one of `refuses` for what it does not take. `write` is its inverse. Of a golden cut
    anywhere nothing is taken, unless `may_be_cut`. `harmful` is what raised something else once.
    """

    name: str
    read: Callable[[bytes], Any]
    goldens: tuple[bytes, ...]
    refuses: tuple[type[Exception], ...] = (WireError,)
    write: Callable[[Any], bytes] | None = None
    may_be_cut: bool = False
    harmful: tuple[bytes, ...] = ()

    def outcome(self, data: bytes) -> Any:
        """Return the decoded value, None if the bytes are refused in one line; any other exception is a failure."""
        try:
            return self.read(data)
        except self.refuses as error:
            text = str(error)
            assert text, f"{self.name}: a refusal without a word"
            assert "\n" not in text, f"{self.name}: {text}"
            return None


def places(size: int) -> range:
    """Return the positions at which this many bytes are cut or changed."""
    return range(0, size, max(1, size // _MOST_PLACES))


def with_one_byte_changed(data: bytes, bits: range | None = None) -> Iterator[bytes]:
    """Yield data with a bit of one byte changed, byte after byte, and with the whole byte inverted."""
    for at in places(len(data)):
        for mask in (*(1 << bit for bit in bits or (at * 5 % 8,)), 0xFF):
            yield data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def in_file(read: Callable[[Path], T]) -> Callable[[bytes], T]:
    """Return a function of bytes from one of files, by a file in memory."""

    def read_bytes(data: bytes) -> T:
        descriptor = os.memfd_create("damaged")
        try:
            os.write(descriptor, data)
            return read(Path(f"/proc/self/fd/{descriptor}"))
        finally:
            os.close(descriptor)

    return read_bytes
