"""Kinds: names, selectable fields, columns, rights and server-side strategy of each kind of resources.

Everything that the API server, its clients and the command line know of a kind is derived from its `Kind`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Final, Generic, Protocol

import msgspec

from controller.apiserver.resources.base import Count, FieldValue, Metadata, R, Resource
from controller.common.errors import InvalidError, StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Principal, Right, Role


class Verb(StrEnum):
    """Operation on a resource."""

    READ = "read"
    CREATE = "create"
    REPLACE = "replace"
    STATUS = "status"
    DELETE = "delete"
    BIND = "bind"
    RELEASE = "release"
    EVICT = "evict"
    SHARE = "share"
    DISPATCH = "dispatch"
    COMPLETE = "complete"
    EXEC = "exec"
    ANSWER = "answer"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Own:
    """Rights of a role on those resources whose field names the caller: the pods of a node, the tasks of a centre."""

    field: str
    verbs: frozenset[Verb]


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights on a kind, besides those of administrators and services, which may do everything.

    By default users may read all resources of the kind, and other roles nothing.
    """

    is_public: bool = False
    """Anyone with a token may read it."""
    is_private: bool = False
    """Users see only their own and their projects' resources."""
    users_write: bool = False
    """Users may create resources, and replace and delete their own."""
    users_right: Right | None = None
    """Right with which users may do so, too."""
    own: Mapping[Role, Own] = field(default_factory=dict)
    roles: Mapping[Role, frozenset[Verb]] = field(default_factory=dict)
    """Verbs of controllers on all resources of the kind."""


class Usage(Strict, frozen=True):
    """Usage of each resource that a quota limits."""

    pods: Count = 0
    tasks: Count = 0
    pending: Count = 0
    units: Count = 0
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    device_thousandths: Count = 0
    objects: Count = 0
    bytes: Count = 0


class Server(Protocol):
    """The part of the API server that a strategy sees."""

    def now_ns(self) -> int:
        """Return the server's time since 1970."""

    def begin_lease(self, reported: Resource) -> None:
        """Begin the lease of a node's or centre's report, unless it has begun."""

    def is_lease_over(self, resource: Resource) -> bool:
        """Return whether the lease from a node's or centre's last report has expired."""

    def used(self, account: str) -> Usage:
        """Return an account's current usage."""

    def subject(self, kind: str, name: str) -> Metadata | None:
        """Return the metadata of a decision's subject, by its kind in lower case; None if it is not in memory."""

    async def selected(self, kind: Kind[R], field: str, value: str) -> Sequence[R]:
        """Return all resources of a kind with this value of a field."""

    async def find_all(self, kind: Kind[R], names: Sequence[str]) -> Mapping[str, R]:
        """Return those of some resources that exist, by name."""

    def cached(self, kind: Kind[R], name: str) -> R | None:
        """Return a resource from memory, which may lag behind the storage; None if it is not there."""


class Strategy(Generic[R]):
    """Hooks of the API server for a kind; these defaults add nothing to reading and writing it.

    A create calls `prepare`, `validate`, `check_references` and `after_write`; a replacement `validate` and
    `after_write`; a write of the status `prepare_status` and `after_write`. After a lost race all but `after_write` run
    again.
    """

    def prepare(self, new: R, principal: Principal, server: Server) -> R:
        """Return a new resource, which has its owner and project, as it will be created."""
        return new

    def validate(self, current: R | None, wanted: R) -> None:
        """Raise InvalidError or StaleError for a resource, or a change of labels and spec, that is not allowed."""

    async def check_references(self, new: R, principal: Principal, server: Server) -> None:
        """Raise InvalidError for a new resource that refers to others in a way that is not allowed."""

    def prepare_status(self, current: R, wanted: R, principal: Principal, server: Server) -> R:
        """Return the resource with its new status, restored where others write it; raise StaleError."""
        return wanted

    def after_write(self, written: R, server: Server) -> None:
        """Act on a resource that was just created or changed."""

    async def check_unused(self, current: R, server: Server) -> None:
        """Raise StaleError for a resource that others refer to, before its deletion."""

    def may_delete(self, current: R) -> None:
        """Raise StaleError for a resource that may not be deleted; checked in the transaction that deletes it."""

    def is_held(self, current: R) -> bool:
        """Return whether a deletion only marks the resource, because it holds something of others."""
        return False

    def usage(self, resource: R) -> Usage | None:
        """Return what quotas limit, besides objects and bytes; None if quotas ignore the kind."""
        return None

    def priority(self, resource: R) -> int | None:
        """Return the highest priority that a resource asks for; None if its kind has none."""
        return None

    def shown(self, resource: R, server: Server) -> R:
        """Return a resource as readers see it."""
        return resource


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of resources: its name, its word in URLs, its type, and the fields besides the name that lists select by.

    A field with several values is selected by any of them. `columns` are those of `millrace get` between name and age.

    `initial` are the parts that every new resource has at their defaults, because only actions of the server, or
    reports, write them. Decisions may be about subjects, and belong to their owner.
    """

    name: str
    plural: str
    type: type[R]
    fields: Mapping[str, Callable[[R], FieldValue]] = field(default_factory=dict)
    initial: tuple[str, ...] = ()
    columns: Mapping[str, Callable[[R], object]] = field(default_factory=dict)
    rights: Rights = Rights()
    strategy: Strategy[R] = field(default_factory=Strategy)
    is_subject: bool = False

    def field(self, name: str) -> Callable[[R], FieldValue] | None:
        """Return the getter of a selectable field, None if there is no such field."""
        return _OF_ALL.get(name) or self.fields.get(name)

    def default(self, part: str) -> Any:  # noqa: ANN401 - of whatever type the part is
        """Return the default of a part."""
        field = _parts_of(self.type)[part]
        return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class KindTable:
    """All kinds, in the order in which they are listed."""

    def __init__(self, kinds: Iterable[Kind[Any]]) -> None:
        self._by_plural: dict[str, Kind[Any]] = {}
        self._by_type: dict[type[Resource], Kind[Any]] = {}
        self._by_word: dict[str, Kind[Any]] = {}
        for kind in kinds:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind[Any]]:
        return iter(self._by_plural.values())

    def add(self, kind: Kind[Any]) -> None:
        """Add a kind; servers started before do not serve it."""
        self._by_plural[kind.plural] = self._by_type[kind.type] = self._by_word[kind.name.lower()] = kind

    def remove(self, kind: Kind[Any]) -> None:
        """Remove a kind."""
        del self._by_plural[kind.plural], self._by_type[kind.type], self._by_word[kind.name.lower()]

    def of_plural(self, plural: str) -> Kind[Any] | None:
        """Return the kind with this word in URLs."""
        return self._by_plural.get(plural)

    def of_type(self, resource: type[R]) -> Kind[R]:
        """Return the kind of a resource type; raise KeyError."""
        return self._by_type[resource]

    def typed(self, word: str) -> Kind[Any] | None:
        """Return the kind that a user names: `pod`, `Pods`, `pod-group`; None if there is none."""
        wanted = word.lower().replace("-", "").replace("_", "")
        return self.of_word(wanted) or self.of_plural(wanted)

    def of_word(self, word: str) -> Kind[Any] | None:
        """Return the kind with this name in lower case."""
        return self._by_word.get(word)


def owner_of(principal: Principal) -> str:
    """Return the owner's name for resources of a principal; distinct for users and other roles."""
    return principal.name if principal.role is Role.USER else f"{principal.role.value}:{principal.name}"


def check_secrets(kind: str, metadata: Metadata, *, named: bool) -> None:
    """Raise InvalidError for a resource that names secrets but has no project: secrets belong to projects."""
    if named and not metadata.project:
        raise InvalidError(f"{kind} {metadata.name} names secrets, but belongs to no project")


def check_no_holders(kind: str, name: str, holders: Sequence[str]) -> None:
    """Raise StaleError for a resource that others hold shares of."""
    if holders:
        rest = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
        raise StaleError(f"{kind} {name} has shares held by {holders[0]}{rest}")


_OF_ALL: Final[Mapping[str, Callable[[Any], FieldValue]]] = {
    "name": lambda resource: resource.metadata.name,
    "owner": lambda resource: resource.metadata.owner or None,
    "project": lambda resource: resource.metadata.project or None,
}


@cache
def _parts_of(kind: type[Resource]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a resource type by name; cached, as computing them costs as much as a write."""
    return {field.name: field for field in msgspec.structs.fields(kind)}
