"""Reasons why a node cannot take a request: the missing resources and amounts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """A resource that a node lacks: `wanted` of `unit`, of which `free` are available."""

    resource: str
    wanted: int
    free: int
    unit: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.wanted} {self.unit} wanted, {self.free} free"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why a request does not fit, one per short resource; never empty."""

    node: str
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        return f"{self.node}: {'; '.join(map(str, self.missing))}"
