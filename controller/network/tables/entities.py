"""P4Runtime entities as the controller compares them, by identity and by content.

The entities themselves are finsy's; they are treated as values and never changed once made. Identity and content are
computed here from names and numbers only, so that deciders need no P4Info.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CloneSessionEntry,
    P4IndirectAction,
    P4MulticastGroupEntry,
    P4RegisterEntry,
    P4TableAction,
    P4TableEntry,
)
from finsy.p4entity import P4Replica

from controller.common.errors import ControllerError

Entity = (
    P4TableEntry
    | P4ActionProfileMember
    | P4ActionProfileGroup
    | P4MulticastGroupEntry
    | P4CloneSessionEntry
    | P4RegisterEntry
)


class Kind(StrEnum):
    """Kind of an entity, as far as the order of writes is concerned."""

    MEMBER = "member"
    GROUP = "group"
    CLONE = "clone-session"
    MULTICAST = "multicast-group"
    DEFAULT = "default-action"
    ENTRY = "entry"
    REGISTER = "register"
    """A cell of a register: the data plane writes it, too, so that it is never read back or reconciled."""


MatchValue = int | tuple[int, int]
"""exact: value; lpm: (value, prefix length); ternary: (value, mask)."""


@dataclass(frozen=True, slots=True, order=True)
class EntityKey:
    """An entity's identity: kind, table or profile, match without don't-care fields, and priority or id."""

    kind: Kind
    table: str
    match: tuple[tuple[str, MatchValue], ...] = ()
    number: int = 0
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Cached hash: tables are dictionaries by key, copied and compared many times for each new key.
        object.__setattr__(self, "_hash", hash((self.kind, self.table, self.match, self.number)))

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        match = " ".join(f"{name}={_show(value)}" for name, value in self.match)
        number = "" if self.number == 0 else f"#{self.number}"
        return " ".join(part for part in (self.kind, self.table, match, number) if part)


class Verb(StrEnum):
    """The three things that a P4Runtime update can do."""

    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Update:
    """One change of one entity; a default action is only ever modified: without an action it is reset."""

    verb: Verb
    key: EntityKey
    entity: Entity

    def __str__(self) -> str:
        return f"{self.verb} {self.key}"


Entities = Mapping[EntityKey, Entity]
"""Entities that a switch holds or should hold."""

Batch = tuple[Update, ...]
"""Updates of one switch that may be executed in any order (P4Runtime 1.4, section 12.2)."""


def index(entities: Iterable[Entity]) -> dict[EntityKey, Entity]:
    """Return entities by key, in order; raise ControllerError when two of one key differ."""
    by_key: dict[EntityKey, Entity] = {}
    for entity in entities:
        key = key_of(entity)
        if key in by_key and content_of(by_key[key]) != content_of(entity):
            raise ControllerError(f"{key}: requested twice with different content")
        by_key[key] = entity
    return by_key


def key_of(entity: Entity) -> EntityKey:
    """Return an entity's identity."""
    match entity:
        case P4TableEntry():
            kind = Kind.DEFAULT if entity.is_default_action else Kind.ENTRY
            return EntityKey(kind, entity.table_id, _match_of(entity), entity.priority)
        case P4ActionProfileMember():
            return EntityKey(Kind.MEMBER, entity.action_profile_id, (), entity.member_id)
        case P4ActionProfileGroup():
            return EntityKey(Kind.GROUP, entity.action_profile_id, (), entity.group_id)
        case P4CloneSessionEntry():
            return EntityKey(Kind.CLONE, "", (), entity.session_id)
        case P4MulticastGroupEntry():
            return EntityKey(Kind.MULTICAST, "", (), entity.multicast_group_id)
        case P4RegisterEntry():
            return EntityKey(Kind.REGISTER, entity.register_id, (), entity.index or 0)


def content_of(entity: Entity) -> Hashable:
    """Return an entity's content, apart from its identity: equal contents need no write."""
    match entity:
        case P4TableEntry():
            return _action_content(entity.action)
        case P4ActionProfileMember():
            return _action_content(entity.action)
        case P4ActionProfileGroup():
            # A member's watched port is left out: bmv2 accepts it and does not return it in reads.
            return frozenset((member.member_id, _weight(member.weight)) for member in entity.members or ())
        case P4CloneSessionEntry():
            return (_replicas(entity), entity.class_of_service, entity.packet_length_bytes)
        case P4MulticastGroupEntry():
            return _replicas(entity)
        case P4RegisterEntry():
            return _plain(entity.data)


def references(entity: Entity) -> tuple[Kind, frozenset[int]] | None:
    """Return the members or groups that an entity depends on, None if there are none."""
    if isinstance(entity, P4ActionProfileGroup):
        return Kind.MEMBER, frozenset(member.member_id for member in entity.members or ())
    if isinstance(entity, P4TableEntry) and isinstance(entity.action, P4IndirectAction):
        if entity.action.group_id is not None:
            return Kind.GROUP, frozenset((entity.action.group_id,))
        if entity.action.member_id is not None:
            return Kind.MEMBER, frozenset((entity.action.member_id,))
    return None


def same(left: Entity, right: Entity) -> bool:
    """Return whether two entities of one key are equal, so that no write is needed."""
    return left is right or content_of(left) == content_of(right)


def _match_of(entry: P4TableEntry) -> tuple[tuple[str, MatchValue], ...]:
    fields = ((name, _number(value)) for name, value in (entry.match or {}).items())
    # A prefix of length 0 or an empty mask is a field that P4Runtime leaves out (section 9.1.1).
    return tuple(sorted((name, value) for name, value in fields if not (isinstance(value, tuple) and value[1] == 0)))


def _number(value: object) -> MatchValue:
    """Return a match value or argument as plain numbers, from any of finsy's spellings."""
    match value:
        case IPv4Network() | IPv6Network():
            return int(value.network_address), value.prefixlen
        case (first, second):
            return _plain(first), _plain(second)
        case _:
            return _plain(value)


def _plain(value: object) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, IPv4Address | IPv6Address):
        return int(value)
    raise ControllerError(f"{value!r} is not a number or an address")


def _action_content(action: P4TableAction | P4IndirectAction | None) -> Hashable:
    match action:
        case None:
            return None
        case P4TableAction():
            arguments = sorted((name, _number(value)) for name, value in action.args.items())
            return action.name, tuple(arguments)
        case P4IndirectAction():
            if action.action_set is None:
                return "indirect", action.member_id, action.group_id
            return frozenset((weight, _action_content(member)) for weight, member in action.action_set)


def _replicas(entry: P4CloneSessionEntry | P4MulticastGroupEntry) -> frozenset[tuple[int, int]]:
    return frozenset(_replica(replica) for replica in entry.replicas)


def _replica(replica: P4Replica | int | tuple[int, int]) -> tuple[int, int]:
    match replica:
        case int():
            return replica, 0
        case P4Replica():
            return replica.port, replica.instance
        case (port, instance):
            return port, instance


def _weight(weight: int | tuple[int, int]) -> int:
    return weight if isinstance(weight, int) else weight[0]


def _show(value: MatchValue) -> str:
    return f"{value[0]:#x}/{value[1]:#x}" if isinstance(value, tuple) else f"{value:#x}"
