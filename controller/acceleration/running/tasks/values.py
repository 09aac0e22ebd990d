"""Values that a centre's agent and the process of a SQL task exchange as files in the job's folder."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dataplane.config import Strict

HERE: Final = "here"
"""A Spark cluster that the task starts and ends, with a worker for each unit."""
SPARK_SETTINGS: Final = "MILLRACE_SPARK_SETTINGS"
"""Environment variable with the settings of a running Spark cluster, which may hold a secret: a JSON object."""
QUERY_FILE: Final = "query.json"
RAN_FILE: Final = "ran.json"
MOST_BYTES: Final = 4 << 30
"""Memory of a worker whose unit has no limit."""
MOST_RAN_BYTES: Final = 1 << 18
SECRET: Final = "MILLRACE_WORKERS_SECRET"  # noqa: S105 - a variable's name
"""Environment variable with the secret of the centre's workers, in hexadecimal digits."""
_Text = Annotated[str, Meta(max_length=1000)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]


class QueryTable(Strict, frozen=True):
    """A table: its file, and its rows and columns when the task was planned."""

    file: str
    rows: int | None = None
    columns: dict[str, str] = msgspec.field(default_factory=dict)


class Query(Strict, frozen=True):
    """A statement, its tables, and what runs it.

    `sharded` is the table whose rows the workers share; '' runs it as a whole. `workers` processes of `threads` threads
    are started, unless there are `addresses` of running ones, on these `hosts`. `job` is the name of a job at
    `job_service` whose switches add up sums; '' for none, with `no_switch` saying why if that was planned. `spark` is
    where a statement runs that is not split: the URL of a master, HERE for a cluster of its own, '' for one DuckDB.
    """

    sql: str
    tables: dict[str, QueryTable]
    sharded: str = ""
    workers: int = 1
    threads: int = 1
    memory_bytes: int = MOST_BYTES
    addresses: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    job: str = ""
    job_service: str = ""
    no_switch: str = ""
    spark: str = ""
    deadline_s: float = 86_400.0


class Way(StrEnum):
    """The executor of a statement."""

    SPLIT = "split"
    """Workers, each on a part of the sharded table."""
    WHOLE = "whole"
    """One DuckDB over all rows."""
    SPARK = "spark"
    """Apache Spark."""


class RanStep(Strict, frozen=True):
    """A step that was planned for a device: where it ran, the longest time of a worker, or why DuckDB ran it."""

    step: Annotated[str, Meta(max_length=100)]
    device: Annotated[str, Meta(max_length=100)]
    seconds: _Seconds | None = None
    why: _Text = ""


class Ran(Strict, frozen=True):
    """A statement's run: `seconds` from its start to the last row, tables being loaded before, in `load_s`.

    `by_switch`: switches added up the workers' sums.
    """

    way: Way
    workers: Annotated[int, Meta(ge=1, le=1 << 20)]
    rows: Annotated[int, Meta(ge=0, le=1 << 62)]
    load_s: _Seconds
    seconds: _Seconds
    why: _Text = ""
    by_switch: bool = False
    steps: Annotated[tuple[RanStep, ...], Meta(max_length=1024)] = ()
    notes: Annotated[tuple[_Text, ...], Meta(max_length=64)] = ()


decode_ran = msgspec.json.Decoder(Ran).decode
"""Made at import: the first decoders of a type must not be made by two threads."""


def summary(ran: Ran) -> str:
    """Return how a statement ran, in one line."""
    workers = f"{ran.workers} worker{'s' if ran.workers > 1 else ''}"
    by = {
        Way.SPLIT: f"{workers}, whose sums switches added up," if ran.by_switch else workers,
        Way.WHOLE: "one DuckDB",
        Way.SPARK: f"Apache Spark on {workers}",
    }[ran.way]
    why = f" ({ran.why})" if ran.why else ""
    parts = [f"{ran.rows} rows by {by}{why} in {ran.seconds:.3g} s, after {ran.load_s:.3g} s of loading"]
    parts += [
        f"{step.step} on {step.device}" + (f" in {step.seconds:.3g} s" if step.seconds is not None else "")
        + (f" ({step.why})" if step.why else "")
        for step in ran.steps
    ]  # fmt: skip
    return "; ".join([*parts, *ran.notes])
