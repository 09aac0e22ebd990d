"""Hop records as columns: taken from native memory, sent, and stored without an object per record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from operator import attrgetter
from types import NoneType
from typing import Final, get_args, get_type_hints

from collectors.statistics.columns import UNKNOWN
from collectors.values import FlowKey, HopRecord, RecordKind

COLUMNS: Final = tuple(field.name for field in fields(HopRecord) if field.name != "flow")
"""Every field of a record but its flow, in their order."""
_HINTS: Final = get_type_hints(HopRecord)
MAYBE_UNKNOWN: Final = frozenset(name for name in COLUMNS if NoneType in get_args(_HINTS[name]))
"""Columns whose values a hop may lack."""

_figures_of: Final = attrgetter(*COLUMNS)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Hop records, those of one report in travelling order; `flow` has places among `flows`.

    `columns` have the names of `HopRecord`'s fields; unknown values are UNKNOWN, kinds are numbers.
    """

    flows: Sequence[FlowKey]
    flow: Sequence[int]
    columns: Mapping[str, Sequence[int]]

    @classmethod
    def of(cls, records: Sequence[HopRecord]) -> RecordColumns:
        """Return the columns of records."""
        # By identity: the hops of a packet share one object, whose hash costs more than all the rest.
        flows = {id(record.flow): record.flow for record in records}
        places = {flow: index for index, flow in enumerate(flows)}
        flow = [places[id(record.flow)] for record in records]
        rows = list(zip(*map(_figures_of, records), strict=True)) or [()] * len(COLUMNS)
        columns = {
            name: [UNKNOWN if value is None else int(value) for value in column]
            for name, column in zip(COLUMNS, rows, strict=True)
        }
        return cls(list(flows.values()), flow, columns)

    def __len__(self) -> int:
        return len(self.flow)

    def known(self, name: str) -> Sequence[int | None]:
        """Return a column with None for unknown values."""
        column = self.columns[name]
        if name in MAYBE_UNKNOWN and UNKNOWN in column:
            return [None if value == UNKNOWN else value for value in column]
        return column

    def reports(self) -> Iterator[tuple[HopRecord, ...]]:
        """Yield the records of each report."""
        for _, records in groupby(self.records(), key=attrgetter("reporter_id", "sequence")):
            yield tuple(records)

    def records(self) -> tuple[HopRecord, ...]:
        """Return a record for each row."""
        flows = map(self.flows.__getitem__, self.flow)
        columns: dict[str, Sequence[object]] = {name: self.known(name) for name in COLUMNS}
        columns["kind"] = [RecordKind(number) for number in self.columns["kind"]]
        received, *others = columns.values()
        return tuple(map(HopRecord, received, flows, *others))  # by their names above
