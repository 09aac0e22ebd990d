"""Hierarchical names of content, and their hashes, which represent them in packets and in the switch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dataplane.store.errors import StoreError

_BYTES = 16


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of content of at most 1,024 bytes, identified by the hash of its name and its number."""

    name: int
    number: int = 0

    def __hash__(self) -> int:
        return hash((key_of(self.name), self.number))


@dataclass(frozen=True, slots=True)
class HotName:
    """A switch's report to its controller; `requests` is at least the actual number in the numbered interval.

    `producer` is the address that the last of them was sent to.
    """

    segment: Segment
    requests: int
    producer: int = 0
    interval: int = 0


def digest(name: str) -> int:
    """Return the 128-bit hash (BLAKE2b) of a name such as `/model/layer1/weights`; raise StoreError if invalid."""
    components = name.split("/")
    if components[0] or len(components) < 2 or not all(components[1:]):
        raise StoreError(f"{name!r} is not a name: it begins with / and has no empty component")
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=_BYTES).digest(), "big")


def key_of(name: int) -> bytes:
    """Return a name's 128 bits as a key of in-memory tables.

    Writers choose these bits, and Python's hash of integers is predictable, so all names could collide; its hash of
    bytes is randomised per process.
    """
    return name.to_bytes(_BYTES, "big")
