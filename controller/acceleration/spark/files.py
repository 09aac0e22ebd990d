"""Files of event logs: single ones, rolled ones (eventlog_v2_*), and folders of both; their lines, one at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.spark.codecs import parts_of
from dataplane.given import open_given

LINE_BYTES: Final = 16 << 20
"""Longest line: plans of queries and lists of stages may take megabytes."""
_ENDLESS: Final = 4 * LINE_BYTES
MOST_LOGS: Final = 10_000
_ROLLED: Final = re.compile(r"events_(?P<index>\d+)_.+")
_COMPACT: Final = ".compact"


@dataclass(frozen=True, slots=True)
class Log:
    """A log's name and its files in order; `lacks` are the numbers of missing files of a rolled one."""

    name: str
    files: tuple[Path, ...]
    lacks: tuple[int, ...] = ()


def logs_at(path: Path) -> tuple[Log, ...]:
    """Return the logs at a path: the file, the rolled log, or those in the folder; raise AccelerationError for none."""
    try:
        if not path.is_dir():
            return (Log(str(path), (path,)),)
        inside = sorted(path.iterdir())
    except OSError as error:
        raise AccelerationError(f"{path}: {error.strerror}") from None
    if rolled := _rolled(path, inside):
        return (rolled,)
    logs = []
    for entry in inside[:MOST_LOGS]:
        if entry.name.startswith("."):
            continue
        if entry.is_file():
            logs.append(Log(str(entry), (entry,)))
        elif entry.is_dir():
            logs += [log for log in [_rolled(entry, sorted(entry.iterdir()))] if log is not None]
    if not logs:
        raise AccelerationError(f"{path}: no event log in this folder")
    return tuple(logs)


def _rolled(folder: Path, inside: Iterable[Path]) -> Log | None:
    """Return the files events_N_* in order of N; a compact one replaces those before it."""
    numbered = [(int(match["index"]), file) for file in inside if (match := _ROLLED.fullmatch(file.name))]
    if not numbered:
        return None
    numbered.sort(key=lambda pair: (pair[0], pair[1].name))
    compact = [index for index, file in numbered if file.name.endswith(_COMPACT)]
    first = compact[-1] if compact else 1
    kept = [(index, file) for index, file in numbered if index >= first]
    if compact:
        kept = [(index, file) for index, file in kept if index > first or file.name.endswith(_COMPACT)]
    there = {index for index, _ in kept}
    lacks = tuple(sorted(set(range(first, max(there) + 1)) - there)) if max(there) < MOST_LOGS else ()
    return Log(str(folder), tuple(file for _, file in kept), lacks)


class Lines:
    """Lines of a log's files, numbered over all of them; `faults` fills with defects as they are read."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.count = 0
        self.too_long = 0
        self.faults: list[str] = [f"lacks file {number}" for number in log.lacks[:3]]

    def __iter__(self) -> Iterator[bytes]:
        """Yield lines without their ends; skip those longer than LINE_BYTES.

        Raise AccelerationError for a file that cannot be read at all, or whose compression is unknown.
        """
        for file in self._log.files:
            yield from self._lines(file)

    def _lines(self, file: Path) -> Iterator[bytes]:
        rest, is_skipping, skipped = bytearray(), False, 0
        for part in self._parts(file):
            rest += part
            if b"\n" not in part:
                if len(rest) > LINE_BYTES:
                    is_skipping, skipped = True, skipped + len(rest)
                    rest.clear()
                if skipped > _ENDLESS:
                    # A device, or a file that is no log: it need not have an end.
                    self.faults.append(f"has a line of more than {_ENDLESS >> 20} MiB, after which nothing is read")
                    return
                continue
            *lines, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for line in lines:
                self.count += 1
                if is_skipping or len(line) > LINE_BYTES:
                    self.too_long += 1
                    is_skipping, skipped = False, 0
                elif line.strip():
                    yield line
        if rest.strip() and not is_skipping:
            self.count += 1
            yield bytes(rest)

    def _parts(self, file: Path) -> Iterator[bytes]:
        try:
            with open_given(file) as opened:
                yield from parts_of(opened, file.name)
        except EOFError:
            self.faults.append("its compressed data end in the middle")
        except ValueError as error:
            self.faults.append(str(error))
        except OSError as error:
            raise AccelerationError(f"{file}: {error.strerror or 'cannot be read'}") from None
