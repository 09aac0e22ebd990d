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

    def holds(self, found: FieldValue) -> bool:
        """Return whether the value of a label or field satisfies the term; None means it does not exist."""
        values = found if isinstance(found, tuple) else () if found is None else (found,)
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
        found = cls(_terms(labels, "labels"), _terms(fields, "fields"))
        unknown = next((term.name for term in found.fields if kind.field(term.name) is None), None)
        if unknown is not None:
            known = ", ".join(("name", "owner", "project", *kind.fields))
            raise InvalidError(f"fields: {kind.plural} cannot be selected by {unknown}; known: {known}")
        return found


ALL: Final = Selection()


def _terms(text: str, where: str) -> tuple[Term, ...]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) > _MOST_TERMS:
        raise InvalidError(f"{where}: at most {_MOST_TERMS} terms")
    return tuple(_term(part, where) for part in parts)


def _term(text: str, where: str) -> Term:
    found = _TERM.fullmatch(text)
    if found is None or (found["absent"] and found["how"]):
        raise InvalidError(f"{where}: {text[:80]!r} must be one of a=b, a!=b, a, !a")
    if found["how"]:
        return Term(found["name"], How.DIFFERENT if found["how"] == "!=" else How.EQUAL, found["value"])
    return Term(found["name"], How.ABSENT if found["absent"] else How.PRESENT)
