"""Findings of `millrace doctor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """Usability of a thing."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Purpose:
    """A thing that Millrace can use: its name, its use, and how to get it, in a line each."""

    what: str
    needed_for: str
    remedy: str
    is_required: bool = False
    """The base product does not run without it."""

    def found(self, state: State, text: str) -> Finding:
        """Return the finding of a probe."""
        return Finding(self, state, " ".join(text.split()))

    def ok(self, text: str) -> Finding:
        """Return the finding that it works."""
        return self.found(State.OK, text)

    def limited(self, text: str, remedy: str | None = None) -> Finding:
        """Return the finding that it works in part, or is there and fails, which may have a remedy of its own."""
        finding = self.found(State.LIMITED, text)
        return finding if remedy is None else replace(finding, purpose=replace(self, remedy=remedy))

    def missing(self, text: str) -> Finding:
        """Return the finding that it does not work."""
        return self.found(State.MISSING, text)


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a probe."""

    purpose: Purpose
    state: State
    text: str

    @property
    def remedy(self) -> str:
        """A line on getting it; empty if nothing is to be done."""
        return "" if self.state is State.OK else self.purpose.remedy

    @property
    def is_fatal(self) -> bool:
        """Return whether the base product cannot run."""
        return self.purpose.is_required and self.state is State.MISSING
