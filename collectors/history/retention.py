"""Retention of complete files: merged when old enough, deleted when too old or when they take too much space."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, pairwise
from pathlib import Path

from collectors.errors import HistoryError
from collectors.history import files
from collectors.history.downsample import Halt, merge
from collectors.history.files import HistoryFile
from collectors.history.parquet import problem_of
from collectors.history.schema import TABLES, Table
from collectors.history.settings import HistorySettings
from dataplane.clock import NS_PER_S


class Ages:
    """Ages of files by the times of their newest rows (UNIX seconds), at `now_s`.

    Of the time between two successive ones, and between the newest and now, at most `gap_s` counts. `ahead_s` is how
    far the clock is ahead of the newest if that is more, else 0.
    """

    def __init__(self, ends_s: Iterable[int], now_s: int, gap_s: int) -> None:
        ends = sorted(set(ends_s), reverse=True)
        since_s = max(now_s - ends[0], 0) if ends else 0
        self.ahead_s = since_s if since_s > gap_s else 0
        self._ages = dict.fromkeys(ends[:1], min(since_s, gap_s))
        for later, earlier in pairwise(ends):
            self._ages[earlier] = self._ages[later] + min(later - earlier, gap_s)

    def age_s(self, end_s: int) -> int:
        """Return the age of one of these times; 0 for any other, as of a file that has only just come."""
        return self._ages.get(end_s, 0)


def due_interval_ns(settings: HistorySettings, age_ns: int) -> int:
    """Return the interval that rows of an age should have at least."""
    interval_ns, keep_ns = settings.interval_ns, settings.keep_ns
    for tier in settings.tiers:
        if age_ns <= keep_ns:
            break
        interval_ns, keep_ns = tier.interval_ns, tier.keep_ns
    return interval_ns


def due_merges(
    history_files: Iterable[HistoryFile], settings: HistorySettings, ages: Ages
) -> Iterator[tuple[int, list[HistoryFile]]]:
    """Yield the successive files to be merged into one, with the interval of its rows.

    They are `merge_files` at a time; fewer when they have waited for the time span of that many files without new ones.
    """

    def interval_due(file: HistoryFile) -> int:
        due_ns = due_interval_ns(settings, ages.age_s(file.end_s) * NS_PER_S)
        return due_ns if file.interval_ns < due_ns else 0

    patience_ns = settings.merge_files * settings.file_span_ns
    for interval_ns, group in groupby(history_files, interval_due):
        waiting = list(group)
        while interval_ns and waiting:
            chunk, waiting = waiting[: settings.merge_files], waiting[settings.merge_files :]
            age_ns = ages.age_s(chunk[-1].end_s) * NS_PER_S - patience_ns
            if len(chunk) == settings.merge_files or due_interval_ns(settings, age_ns) >= interval_ns:
                yield interval_ns, chunk


class HistoryKeeper:
    """Merges and deletes a history's complete files; never raises: `on_problem` gets failures.

    Work that `halt` leaves undone is due again the next time.
    """

    def __init__(self, settings: HistorySettings, on_problem: Callable[[str], None], halt: Halt | None = None) -> None:
        self._settings, self._folder, self._on_problem = settings, Path(settings.folder), on_problem
        self.halt = halt or Halt()

    def tidy(self, now_s: int) -> None:
        """Do all work due at a time (UNIX seconds); report a clock that is far ahead of all rows."""
        with self._telling():
            ages = self._ages(now_s)
            for table in TABLES.values():
                if self.halt.asked:
                    return
                with self._telling():
                    self._tidy_table(table, ages)
        with self._telling():
            self._shrink()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (HistoryError, OSError) as error:
            self._on_problem(str(error))

    def _ages(self, now_s: int) -> Ages:
        listings = [files.listing(self._folder / name) for name in TABLES]
        ends_s = (file.end_s for listed in listings for file in (*listed.files, *listed.replaced, *listed.corrupt))
        ages = Ages(ends_s, now_s, self._settings.gap_ns // NS_PER_S)
        if ages.ahead_s:
            self._on_problem(
                f"{self._folder}: the clock is {ages.ahead_s} s ahead of the newest complete file: only"
                f" {self._settings.gap_ns // NS_PER_S} s of these count as age"
            )
        return ages

    def _tidy_table(self, table: Table, ages: Ages) -> None:
        listed = files.listing(self._folder / table.name)
        for file in (*listed.files, *listed.corrupt):
            if ages.age_s(file.end_s) * NS_PER_S > self._settings.longest_ns:
                file.path.unlink(missing_ok=True)
        for file in listed.replaced:
            file.path.unlink(missing_ok=True)
        if table.is_merged:
            self._merge(table, ages)

    def _merge(self, table: Table, ages: Ages) -> None:
        listed = self._mergeable(table, files.listing(self._folder / table.name).files)
        for interval_ns, sources in due_merges(listed, self._settings, ages):
            try:
                merge(table, sources, interval_ns, self.halt)
            except HistoryError as error:
                if self.halt.asked:
                    return
                if not sum(self._set_aside(source.path) for source in sources):
                    self._on_problem(str(error))

    def _mergeable(self, table: Table, listed: tuple[HistoryFile, ...]) -> tuple[HistoryFile, ...]:
        """Return the files that may be merged: those that the object store, if there is one, has as they are."""
        if self._settings.store is None:
            return listed
        newest = files.uploaded(self._folder / table.name)
        return tuple(file for file in listed if file.last <= newest)

    def _set_aside(self, path: Path) -> bool:
        """Rename a file if it is broken, so that it is no longer read; return whether it was."""
        problem = problem_of(path, thoroughly=True)
        if problem is None:
            return False
        self._on_problem(f"{path}: set aside: {problem}")
        path.rename(path.with_name(path.name + files.CORRUPT))
        return True

    def _shrink(self) -> None:
        """Delete the oldest files, of whatever table, until the folder is small enough."""
        listings = [files.listing(self._folder / name) for name in TABLES]
        excess = sum(listed.size_bytes for listed in listings) - self._settings.max_bytes
        complete = [file for listed in listings for file in (*listed.files, *listed.corrupt)]
        for file in sorted(complete, key=lambda file: file.end_s):
            if excess <= 0:
                return
            file.path.unlink(missing_ok=True)
            excess -= file.size_bytes
