"""The log of records in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from collectors.counters import Count, Counters
from collectors.record_columns import RecordColumns
from collectors.state.record_log import ROOM, Choice, RecordBudget, sample_of
from collectors.values import HopRecord


class PlainRecordLog:
    """Keeps records of a bounded number of hops."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._budget = RecordBudget()
        self._kept: list[tuple[HopRecord, int]] = []

    def want(self, reports_per_s: int, *, is_capped: bool) -> None:
        """Make records of this many reports per second, 0 for none; if that is capped, subscribers want more."""
        self._budget.want(reports_per_s, is_capped=is_capped)

    def say_behind(self, is_behind: bool) -> None:
        """Set whether the collector is behind; if so, no records are made."""
        self._budget.is_behind = is_behind

    def choose(self, choice: int, now_ns: int) -> bool:
        """Return whether a report becomes records; count it otherwise."""
        chosen = self._budget.choose(choice, now_ns)
        if chosen is Choice.WITHHELD:
            self._counters[Count.RECORDS_WITHHELD] += 1
        elif chosen is Choice.NOT_SAMPLED:
            self._counters[Count.RECORDS_NOT_SAMPLED] += 1
        elif chosen is Choice.SHED:
            self._counters[Count.RECORDS_SHED] += 1
        return chosen is Choice.TAKEN

    def put(self, records: Sequence[HopRecord], choice: int) -> None:
        """Keep the records of a chosen report; count it if there is no room."""
        if len(self._kept) + len(records) > ROOM:
            self._counters[Count.RECORDS_WITHHELD] += 1
            return
        self._kept += ((record, choice) for record in records)

    def take(self) -> PlainRecords:
        """Return the records since the last call."""
        kept, self._kept = self._kept, []
        return PlainRecords(kept, self._budget.per_s, self._budget.seen_per_s)


@dataclass(frozen=True, slots=True)
class PlainRecords:
    """Records with the choices of their reports, and the numbers of reports per second kept and seen."""

    kept: list[tuple[HopRecord, int]]
    kept_per_s: int
    seen_per_s: int

    def sample(self, wanted_per_s: int) -> RecordColumns:
        """Return the records of an even sample of about `wanted_per_s` reports per second."""
        share = sample_of(wanted_per_s, self.kept_per_s, self.seen_per_s)
        return RecordColumns.of([record for record, choice in self.kept if choice < share])
