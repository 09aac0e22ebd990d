"""What all resources have: a kind, metadata, what is wanted (spec) and what is (status); and how their parts look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Meta

from dataplane.config import Strict

# In Python `$` also stands before a last end of line.
_NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$(?!\n)"
_LABEL_PATTERN: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$(?!\n)"
_VALUE_PATTERN: Final = r"^([A-Za-z0-9]([A-Za-z0-9._:-]*[A-Za-z0-9])?)?$(?!\n)"

MOST_ITEMS: Final = 4096
MAX_NAME: Final = 100

Name = Annotated[str, Meta(pattern=_NAME_PATTERN, max_length=MAX_NAME)]
"""Of a resource and its parts: lower case letters, digits, dots and hyphens."""
LabelName = Annotated[str, Meta(pattern=_LABEL_PATTERN, max_length=100)]
LabelValue = Annotated[str, Meta(pattern=_VALUE_PATTERN, max_length=100)]
Line = Annotated[str, Meta(max_length=1024)]
"""One line for people."""
Text = Annotated[str, Meta(max_length=65_536)]
Lines = Annotated[tuple[Line, ...], Meta(max_length=256)]
Count = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A number that JSON of any language keeps."""
TimeNs = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
"""Nanoseconds since 1970."""
Priority = Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
Secrets = Annotated[dict[Line, Name], Meta(max_length=64)]
"""Variables of an environment whose values are secrets of the project: files that only the node, or centre, reads."""
Names = Annotated[tuple[Name, ...], Meta(max_length=MOST_ITEMS)]


class Metadata(Strict, frozen=True):
    """Who a resource is; all but name and labels are the server's to say."""

    name: Name
    uid: Annotated[str, Meta(max_length=64)] = ""
    """Of this one and no other of the same name, before or after."""
    revision: Count = 0
    """At which it was written last; a writer who names it writes only if it is still so."""
    created_ns: TimeNs = 0
    deleting_ns: TimeNs | None = None
    """Since when it is to go; it does once nothing is held for it any more."""
    owner: Annotated[str, Meta(max_length=128)] = ""
    """Whoever created it: a user's name, or `ROLE:NAME` of who has another role; empty: an older version did."""
    project: Annotated[str, Meta(max_length=63)] = ""
    """Whose users share it; empty: it is its owner's alone. A user names one of his own, others any."""
    part_of: Name | None = None
    """Of a pod: the group whose template it follows, for the same owner and project."""
    labels: Annotated[dict[LabelName, LabelValue], Meta(max_length=64)] = msgspec.field(default_factory=dict)


class Resource(Strict, frozen=True):
    """Base of every resource; those of a kind have `kind`, `spec` and `status` as well."""

    metadata: Metadata
    if TYPE_CHECKING:
        spec: Any
        status: Any


R = TypeVar("R", bound=Resource)
FieldValue = str | tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Kind(Generic[R]):
    """A kind of resources: its name, the word in URLs, its type, and what lists can be narrowed by, beside the name.

    A field of several values is selected by any of them.

    `owned` are the parts that neither users nor reporters write, but one action of the server each.
    """

    name: str
    plural: str
    type: type[R]
    fields: Mapping[str, Callable[[R], FieldValue]] = field(default_factory=dict)
    owned: tuple[str, ...] = ()

    def field(self, name: str) -> Callable[[R], FieldValue] | None:
        """Return what reads a field that lists can be narrowed by, None if there is none of that name."""
        return _OF_ALL.get(name) or self.fields.get(name)

    def default(self, part: str) -> Any:  # noqa: ANN401 - of whatever type the part is
        """Return a part as it is where nobody has said anything of it."""
        field = _parts_of(self.type)[part]
        return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


_OF_ALL: Final[Mapping[str, Callable[[Any], FieldValue]]] = {
    "name": lambda resource: resource.metadata.name,
    "owner": lambda resource: resource.metadata.owner or None,
    "project": lambda resource: resource.metadata.project or None,
}


@cache
def _parts_of(kind: type[Resource]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a type of resources by name; working them out costs as much as a write."""
    return {field.name: field for field in msgspec.structs.fields(kind)}
