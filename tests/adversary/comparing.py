"""Count the changes that an attack makes to a run, compared with the same run without it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields

from tests.adversary.world import Outcome


def effects(calm: Outcome, besieged: Outcome) -> dict[str, int]:
    """Return, by kind, how the besieged run differs from the calm one."""
    return _counted(calm, besieged, _more)


def lost(calm: Outcome, besieged: Outcome) -> dict[str, int]:
    """Return how much of each kind the besieged run has fewer of."""
    return _counted(calm, besieged, _fewer)


def _counted(calm: Outcome, besieged: Outcome, count: Callable[[object, object], int]) -> dict[str, int]:
    counts = {field.name: count(getattr(calm, field.name), getattr(besieged, field.name)) for field in fields(Outcome)}
    return {name: number for name, number in counts.items() if number}


def _more(calm: object, besieged: object) -> int:
    match calm, besieged:
        case int(), int():
            return max(besieged - calm, 0)
        case Mapping(), Mapping():
            return sum((Counter(besieged) - Counter(calm)).values())
        case list(), list():
            changed = [value != other for value, other in zip(calm, besieged, strict=False)]
            return changed.count(True) + max(len(besieged) - len(calm), 0)
        case set() | frozenset(), set() | frozenset():
            return len(besieged - calm)
    raise TypeError(f"{type(calm).__name__} and {type(besieged).__name__} are not compared")


def _fewer(calm: object, besieged: object) -> int:
    if isinstance(calm, list) and isinstance(besieged, list):
        return max(len(calm) - len(besieged), 0)
    return _more(besieged, calm)
