"""Multicast groups and clone sessions: destinations of a packet's copies."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a packet: the port it leaves by and the instance number that egress sees (egress_rid)."""

    port: int
    instance: int = 0


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Destinations of clones; `packet_length_bytes` 0 leaves them whole."""

    replicas: tuple[Replica, ...]
    class_of_service: int = 0
    packet_length_bytes: int = 0


class ObservedDict(UserDict[int, _Value]):
    """A dictionary that notifies its observers of each change before making it; None marks a removed key."""

    def __init__(self) -> None:
        self.observers: tuple[Callable[[int, _Value | None], None], ...] = ()
        super().__init__()

    def __setitem__(self, key: int, value: _Value) -> None:
        for observe in self.observers:
            observe(key, value)
        super().__setitem__(key, value)

    def __delitem__(self, key: int) -> None:
        if key in self.data:
            for observe in self.observers:
                observe(key, None)
        super().__delitem__(key)
