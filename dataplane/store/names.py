"""Hierarchical names of content, and their hashes, which represent them in packets and in the switch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from dataplane.store.errors import StoreError

_BYTES = 16
_PREFIX_BITS, _PREFIX_MASK, _PREFIX_COMPONENTS = 32, 0xFFFFFFFF, 2


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


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first one or two components of names, by their hashes; 0: any."""

    first: int = 0
    first_two: int = 0

    @property
    def number(self) -> int:
        """The prefix as the name of an announcement."""
        return self.first << _PREFIX_BITS | self.first_two

    @classmethod
    def of_number(cls, number: int) -> Prefix:
        """Return the prefix of an announcement."""
        return cls(number >> _PREFIX_BITS & _PREFIX_MASK, number & _PREFIX_MASK)


def prefix_of(text: str) -> Prefix:
    """Return a prefix such as `/model`, `/model/round-7`, or `/` for all names; raise StoreError if it is none."""
    if text == "/":
        return Prefix()
    digest(text)  # which checks it
    components = text.split("/")[1:]
    if len(components) > _PREFIX_COMPONENTS:
        raise StoreError(f"{text!r} is too long for a prefix: it has {_PREFIX_COMPONENTS} components at most")
    route = route_of(text)
    return route if len(components) == _PREFIX_COMPONENTS else Prefix(route.first)


def route_of(name: str) -> Prefix:
    """Return what requests by name carry: the hashes of the first component, and of the first two."""
    _, first, *more = name.split("/")
    return Prefix(_short(f"/{first}"), _short(f"/{first}/{more[0] if more else ''}"))


def _short(text: str) -> int:
    # Never 0, which stands for any prefix.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big") or 1


def key_of(name: int) -> bytes:
    """Return a name's 128 bits as a key of in-memory tables.

    Writers choose these bits, and Python's hash of integers is predictable, so all names could collide; its hash of
    bytes is randomised per process.
    """
    return name.to_bytes(_BYTES, "big")
