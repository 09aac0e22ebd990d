"""Multicast groups and clone sessions: destinations of a packet's copies."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from dataplane.errors import EntryError, EntryFault
from dataplane.switch.abi import MAX_CLONE_SESSIONS, MAX_MULTICAST_GROUPS

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


def check_group(group_id: int, replicas: Iterable[Replica]) -> None:
    """Raise EntryError unless a multicast group's numbers fit the words that compiled code reads."""
    _check(f"multicast group {group_id}", group_id, MAX_MULTICAST_GROUPS, replicas)


def check_session(session_id: int, session: CloneSession) -> None:
    """Raise EntryError unless a clone session's numbers fit the words that compiled code reads."""
    where = f"clone session {session_id}"
    _check(where, session_id, MAX_CLONE_SESSIONS, session.replicas)
    _check_word("class of service", session.class_of_service, where)
    _check_word("packet length", session.packet_length_bytes, where)


def _check(where: str, identifier: int, limit: int, replicas: Iterable[Replica]) -> None:
    if not 0 <= identifier < limit:
        raise EntryError(EntryFault.OUT_OF_RANGE, f"its number is not in 0..{limit - 1}", where=where)
    for replica in replicas:
        _check_word("port", replica.port, where)
        _check_word("instance", replica.instance, where)


def _check_word(name: str, value: int, where: str) -> None:
    if not 0 <= value < 1 << 32:
        raise EntryError(EntryFault.INVALID, f"{name} {value} does not fit 32 bits", where=where)


class ObservedDict(UserDict[int, _Value]):
    """A dictionary that checks each value, and notifies its observers of each change before making it.

    None marks a removed key.
    """

    def __init__(self, check: Callable[[int, _Value], None]) -> None:
        self._check = check
        self.observers: tuple[Callable[[int, _Value | None], None], ...] = ()
        super().__init__()

    def __setitem__(self, key: int, value: _Value) -> None:
        self._check(key, value)
        for observe in self.observers:
            observe(key, value)
        super().__setitem__(key, value)

    def __delitem__(self, key: int) -> None:
        if key in self.data:
            for observe in self.observers:
                observe(key, None)
        super().__delitem__(key)
