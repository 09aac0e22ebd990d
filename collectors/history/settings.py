"""The history's settings, one sentence each; the defaults keep a month, the newest six hours second by second."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final

from msgspec import Meta

from collectors.history.objects.settings import ObjectStoreSettings
from collectors.settings import Positive
from dataplane.clock import NS_PER_S
from dataplane.config import Settings

_HOUR_NS: Final = 3600 * NS_PER_S
Interval = Annotated[int, Meta(ge=1_000_000, multiple_of=1000)]


class Tier(Settings, frozen=True):
    """Older rows, merged."""

    interval_ns: Interval
    """Time that one row of a link, path or reporter covers."""

    keep_ns: Positive
    """At this age, rows move to the next tier; from the last tier they are deleted."""


class HistorySettings(Settings, frozen=True):
    """Settings of the history: which state is written to files, where, and how long it is kept."""

    folder: str
    """The folder of the files, made if it is missing; one collector writes it at a time."""

    interval_ns: Interval = NS_PER_S
    """Interval between rows of each link, path and reporter; a crash loses at most the rows since the last."""

    keep_ns: Positive = 6 * _HOUR_NS
    """At this age, rows are merged into those of the first tier."""

    tiers: tuple[Tier, ...] = (
        Tier(interval_ns=10 * NS_PER_S, keep_ns=24 * _HOUR_NS),
        Tier(interval_ns=60 * NS_PER_S, keep_ns=30 * 24 * _HOUR_NS),
    )
    """The coarser rows that older ones are merged into; none: rows are deleted when they are older than `keep`."""

    longest_gap_ns: Positive | None = None
    """Time without rows adds at most this to their age, so that a clock that jumps ahead deletes nothing that is not
    old; None: a thirtieth of the age at which rows are deleted, or two files' span.
    """

    max_bytes: Positive = 10_000_000_000
    """The folder's size, above which the oldest files are deleted however young they are."""

    sync_ns: Positive = 10 * NS_PER_S
    """Interval at which rows are synced to disk; a power cut loses at most those since the last sync."""

    file_span_ns: Positive = 600 * NS_PER_S
    """A file is complete at every multiple of this time (UTC)."""

    rows_per_file: Positive = 1_000_000
    """A file with this many rows is complete at the next multiple of the coarsest tier's interval."""

    merge_files: Positive = 6
    """Number of sufficiently old files that are merged into one."""

    max_paths: Positive = 1000
    """The flows of an interval that are written, those with the highest rates; the others are counted."""

    max_drops: Positive = 1000
    """Number of kinds of drops per interval written with flow and ports; the others have only node and reason."""

    store: ObjectStoreSettings | None = None
    """Object store that closed files are uploaded to, and keeps them for longer; null: files are kept here alone."""

    sketches: bool = True
    """Store a sketch of delays with rows of links; without it merged percentiles are rough."""

    def __post_init__(self) -> None:
        steps = [(self.interval_ns, self.keep_ns), *((tier.interval_ns, tier.keep_ns) for tier in self.tiers)]
        for (fine_ns, younger_ns), (coarse_ns, older_ns) in pairwise(steps):
            if coarse_ns % fine_ns or coarse_ns == fine_ns:
                raise ValueError(f"a tier of {coarse_ns} ns is not a multiple of the previous one, {fine_ns} ns")
            if older_ns <= younger_ns:
                raise ValueError(f"a tier that keeps for {older_ns} ns ends before the previous one, {younger_ns} ns")
        if self.file_span_ns % self.coarsest_ns:
            raise ValueError(f"file_span is not a multiple of the coarsest interval, {self.coarsest_ns} ns")

    @property
    def coarsest_ns(self) -> int:
        """The interval of the last tier."""
        return self.tiers[-1].interval_ns if self.tiers else self.interval_ns

    @property
    def longest_ns(self) -> int:
        """The age at which a row is deleted."""
        return self.tiers[-1].keep_ns if self.tiers else self.keep_ns

    @property
    def gap_ns(self) -> int:
        """The most that a time without any row counts as age."""
        return self.longest_gap_ns or max(self.longest_ns // 30, 2 * self.file_span_ns)
