"""Selection of resources of a kind: by labels, and by the fields that the kind defines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from controller.apiserver.registry.tenancy.tenants import Tenant
from controller.apiserver.resources import Kind, Resource
from controller.apiserver.resources.base import FieldValue
from controller.common.errors import InvalidError

_TERM: Final = re.compile(r"(?P<absent>!)?(?P<name>[A-Za-z0-9][A-Za-z0-9._/-]*)(?:(?P<how>!=|==?)(?P<value>[\w.:-]*))?")
_MOST_TERMS: Final = 32


class How(StrEnum):
    """Operator of a term."""

    EQUAL = "="
    DIFFERENT = "!="
    PRESENT = "present"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Term:
    """One condition: `a=b`, `a!=b`, `a` (exists), `!a` (does not exist)."""

    name: str
    how: How
    value: str = ""

    def holds(self, value: FieldValue) -> bool:
        """Return whether the value of a label or field satisfies the term; None means it does not exist."""
        values = value if isinstance(value, tuple) else () if value is None else (value,)
        match self.how:
            case How.EQUAL:
                return self.value in values
            case How.DIFFERENT:
                return self.value not in values
            case How.PRESENT:
                return bool(values)
            case How.ABSENT:
                return not values


@dataclass(frozen=True, slots=True)
class Selection:
    """Terms on labels and fields, all of which must hold, and the tenant to restrict to."""

    labels: tuple[Term, ...] = ()
    fields: tuple[Term, ...] = ()
    tenant: Tenant | None = None
    """If given, only this tenant's resources."""

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields or self.tenant)

    def selects(self, kind: Kind[Any], resource: Resource) -> bool:
        """Return whether a resource of a kind is selected."""
        if self.tenant is not None and not self.tenant.has(resource.metadata):
            return False
        labels: Mapping[str, str] = resource.metadata.labels
        return all(term.holds(labels.get(term.name)) for term in self.labels) and all(
            (read := kind.field(term.name)) is not None and term.holds(read(resource)) for term in self.fields
        )

    @classmethod
    def parse(cls, kind: Kind[Any], labels: str, fields: str) -> Selection:
        """Parse `a=b,c!=d,e,!f` of labels and of fields; raise InvalidError."""
        selection = cls(_terms(labels, "labels"), _terms(fields, "fields"))
        unknown = next((term.name for term in selection.fields if kind.field(term.name) is None), None)
        if unknown is not None:
            names = ", ".join(("name", "owner", "project", *kind.fields))
            raise InvalidError(f"fields: {kind.plural} cannot be selected by {unknown}; known: {names}")
        return selection


ALL: Final = Selection()


def _terms(text: str, where: str) -> tuple[Term, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > _MOST_TERMS:
        raise InvalidError(f"{where}: at most {_MOST_TERMS} terms")
    return tuple(_term(part, where) for part in parts)


def _term(text: str, where: str) -> Term:
    match = _TERM.fullmatch(text)
    if match is None or (match["absent"] and match["how"]):
        raise InvalidError(f"{where}: {text[:80]!r} must be one of a=b, a!=b, a, !a")
    if match["how"]:
        return Term(match["name"], How.DIFFERENT if match["how"] == "!=" else How.EQUAL, match["value"])
    return Term(match["name"], How.ABSENT if match["absent"] else How.PRESENT)
