"""Why a node cannot take a request: what is missing, and how much."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """A resource of which a node has too little: `wanted` of `unit`, and the `free` that there are."""

    resource: str
    wanted: int
    free: int
    unit: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.wanted} {self.unit} wanted, {self.free} free"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request does not fit, each resource that is short; never empty."""

    node: str
    missing: tuple[Missing, ...]

    def __str__(self) -> str:
        return f"{self.node}: {'; '.join(map(str, self.missing))}"
