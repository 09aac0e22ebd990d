"""Text files of records, line by line: every field is checked, every error names file and line."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from controller.cluster.workloads.errors import WorkloadError
from dataplane.given import given_lines

T = TypeVar("T")

MIB: Final = 1 << 20
MOST: Final = 1e18


@dataclass(frozen=True, slots=True)
class Record:
    """A line's fields by name, and its location."""

    file: str
    line: int
    fields: Mapping[str, str]

    def error(self, problem: str) -> WorkloadError:
        """Return an error that names file and line."""
        return WorkloadError(f"{self.file}:{self.line}: {problem}")

    def text(self, name: str) -> str:
        """Return a non-empty field."""
        if not (value := self.fields[name]):
            raise self.error(f"{name} is empty")
        return value

    def integer(self, name: str, least: int = 0) -> int:
        """Return an integer of at least `least`."""
        return self._number(name, int, least)

    def real(self, name: str, least: float = 0.0) -> float:
        """Return a number from `least` to 1e18, so that times in ns are still finite."""
        if (value := self._number(name, float, least)) > MOST:
            raise self.error(f"{name} is {self.fields[name]}, more than {MOST:g}")
        return value

    def _number(self, name: str, kind: Callable[[str], T], least: T) -> T:
        text = self.fields[name]
        try:
            value = kind(text)
        except ValueError:
            raise self.error(f"{name} is {text!r}, not a number") from None
        # float() also accepts "nan" and "inf".
        if not math.isfinite(value) or value < least:  # type: ignore[arg-type,operator]
            raise self.error(f"{name} is {text}, less than {least} or not finite")
        return value


def read_csv(path: Path, columns: tuple[str, ...]) -> Iterator[Record]:
    """Yield the rows of a CSV file whose header names exactly these columns; raise WorkloadError otherwise."""
    with _opened(path) as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = next(reader, None)
            if header is None or tuple(header) != columns:
                raise WorkloadError(f"{path}:1: the columns are {header}, not {list(columns)}")
            for row in reader:
                if len(row) != len(columns):
                    raise WorkloadError(f"{path}:{reader.line_num}: {len(row)} fields, not {len(columns)}")
                yield Record(str(path), reader.line_num, dict(zip(columns, row, strict=True)))
        except csv.Error as error:
            raise WorkloadError(f"{path}:{reader.line_num}: {error}") from None


def read_words(path: Path, columns: tuple[str, ...], *, optional: int = 0, comment: str = "#") -> Iterator[Record]:
    """Yield the lines of a file of blank-separated words; the last `optional` may be missing and are then ''.

    Empty lines, and those that begin with `comment`, are skipped.
    """
    with _opened(path) as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith(comment):
                continue
            if not len(columns) - optional <= len(words) <= len(columns):
                wanted = len(columns) if not optional else f"{len(columns) - optional} to {len(columns)}"
                raise WorkloadError(f"{path}:{number}: {len(words)} fields, not {wanted}")
            words += [""] * (len(columns) - len(words))
            yield Record(str(path), number, dict(zip(columns, words, strict=True)))


@contextmanager
def _opened(path: Path) -> Iterator[Iterator[str]]:
    try:
        yield given_lines(path)
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WorkloadError(f"{path}: is not UTF-8 text") from None
