"""Declaration of a figure: its use in history, metrics, rules and messages, at a field of a state.

Name, unit and type are the field's own: a name ends in its unit, and a type with None says that the figure may be
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from types import NoneType
from typing import Any, get_args, get_type_hints


class Merge(Enum):
    """Rule for merging the values of rows that become one row."""

    KEY = "equal in all of them"
    BUCKET = "the merged interval's begin or length"
    SUM = "their sum"
    LEAST = "the least"
    GREATEST = "the greatest"
    MEASURED_GREATEST = "the greatest of rows with samples, of all rows where none has any"
    NEWEST = "the newest of rows with samples, of all rows where none has any"
    SKETCH = "all that the sketches have taken"
    MEDIAN = "the median of the merged sketch; the mean by samples where a row with samples has none"
    PERCENTILE_99 = "the 99th percentile of the merged sketch; the greatest where a row with samples has none"
    BY_SAMPLES = "their mean by samples; by snapshots where there are none"
    BY_SNAPSHOTS = "their mean by snapshots"


@dataclass(frozen=True, slots=True)
class Figure:
    """Uses of a field, as its annotation declares them.

    `merge` makes it a column of the history, None leaves it out; `greatest` names a second column with the greatest
    value of merged rows. `metric` is the name of a gauge without its prefix, in seconds for times, and `statistic` its
    value of the label of that name. Rules can watch what `is_watched`.
    """

    meaning: str
    merge: Merge | None = None
    greatest: str = ""
    metric: str = ""
    statistic: str = ""
    is_watched: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredFigure:
    """A figure with the name and type of its field; `number` is that of its field in a message."""

    name: str
    number: int
    kind: type
    is_optional: bool
    uses: Figure


def declared_figures(state: type) -> Mapping[str, DeclaredFigure]:
    """Return the figures of a dataclass by name, in order: the fields that are annotated with a `Figure`.

    A field's number in a message is its place among all fields, from 1 on.
    """
    declared: dict[str, DeclaredFigure] = {}
    hints, plain = get_type_hints(state, include_extras=True), get_type_hints(state)
    for number, name in enumerate((field.name for field in fields(state)), 1):
        uses = [annotation for annotation in getattr(hints[name], "__metadata__", ()) if isinstance(annotation, Figure)]
        if uses:
            declared[name] = DeclaredFigure(name, number, *_kind_of(plain[name]), uses[0])
    return declared


def _kind_of(hint: Any) -> tuple[type, bool]:  # noqa: ANN401 - a type, or a union of one with None
    """Return the type behind an annotation, and whether it allows None."""
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return (kinds[0], True) if kinds else (hint, False)
