"""Committed logs of Spark, and what tests read of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.spark.files import Lines, logs_at
from controller.acceleration.spark.qualifying import Qualified, Settings, qualify
from controller.acceleration.spark.reading import read_log
from controller.acceleration.spark.values import Application
from controller.acceleration.values import Accelerator
from dataplane.topology.values import DeviceKind

LOGS: Final = Path(__file__).parent / "logs"
ROLLED: Final = LOGS / "tpch-4.3"
IN_TWO: Final = LOGS / "rolled-4.3"
OLD: Final = LOGS / "tpch-3.5.gz"
ODD: Final = LOGS / "odd-4.3.zstd"
LZ4: Final = LOGS / "q06-4.3.lz4"
SNAPPY: Final = LOGS / "q06-4.3.snappy"
LARGE: Final = LOGS / "tpch-scale-1.zstd"
EVERY: Final = (ROLLED, IN_TWO, OLD, ODD, LZ4, SNAPPY, LARGE)
GPU: Final = Accelerator(DeviceKind.GPU, parallelism=64)


def application(path: Path) -> Application:
    """Return the application of the only log at a path."""
    (log,) = logs_at(path)
    return read_log(log)


def qualified(path: Path, *accelerators: Accelerator) -> Qualified:
    """Return the only application at a path, for machines with accelerators."""
    return qualify(application(path), Settings(accelerators or (GPU,)))


def plain(path: Path) -> bytes:
    """Return a log's lines without compression."""
    (log,) = logs_at(path)
    return b"".join(line + b"\n" for line in Lines(log))


def events(path: Path) -> list[dict[str, Any]]:
    """Return a log's events, read by the standard library."""
    return [json.loads(line) for line in plain(path).splitlines()]


def written(path: Path, lines: Iterable[dict[str, Any] | str]) -> Path:
    """Write a log of events and other lines, and return its path."""
    texts = (line if isinstance(line, str) else json.dumps(line, separators=(",", ":")) for line in lines)
    path.write_text("".join(f"{text}\n" for text in texts))
    return path


def gzipped(data: bytes) -> bytes:
    """Return data as gzip writes it, the same on each day."""
    return gzip.compress(data, mtime=0)


def outcome(read: Callable[[], Iterable[str]]) -> str:
    """Return what is said of an input: the lines that reading it gives, in one, or why it is refused."""
    try:
        return "; ".join(read())
    except AccelerationError as error:
        return str(error)
