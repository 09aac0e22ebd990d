"""From a task to its engine's order: a command, files, an environment, limits; pure."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.secret_files import read as read_secret
from controller.acceleration.running.spark.properties import read as read_properties
from controller.acceleration.running.tasks.values import (
    HERE,
    MOST_BYTES,
    QUERY_FILE,
    SECRET,
    SPARK_SETTINGS,
    Query,
    QueryTable,
)
from controller.apiserver.resources import Task
from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.operator_devices import VARIABLE as DEVICES
from controller.apiserver.resources.operator_devices import text_of
from controller.apiserver.resources.task import Program, ProgramKind
from controller.probing import files
from controller.probing.values import ProbeTask
from controller.workloads.centres.engines.base import JobMark, JobOrder
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.settings import CentreSettings
from dataplane.blas_threads import VARIABLES

PROBE_FILE: Final = "probe.json"
INPUTS: Final = "MILLRACE_INPUTS"
"""Variable with the ends of a task's predecessors, as in its status."""
CENTRES: Final = "MILLRACE_CENTRES"
"""Variable with the centres of a task that several run together, by rank."""
CENTRE_RANK: Final = "MILLRACE_CENTRE_RANK"
_MILLI: Final = 1000
_ROOT: Final = str(Path(__file__).resolve().parents[3])
_PYTHONPATH: Final = "PYTHONPATH"

_CALL: Final = """\
import importlib, json, sys

module, _, function = sys.argv[1].partition(":")
result = getattr(importlib.import_module(module), function)(*sys.argv[2:])
if result is not None:
    with open("result.json", "w", encoding="utf-8") as file:
        json.dump(result, file)
"""
_QUERY: Final = """\
import sys

import duckdb

with open("query.sql", encoding="utf-8") as file:
    text = file.read()
rows = duckdb.connect(sys.argv[1] or ":memory:").execute(text, sys.argv[2:] or None)
for row in iter(rows.fetchone, None) if rows.description else ():
    print(*row, sep="\t")
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A command with its files; `image` if it runs in a container."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None


def python_of(settings: CentreSettings) -> str:
    """Return the interpreter on the jobs' machines."""
    return settings.python or sys.executable


def python_path(settings: CentreSettings) -> dict[str, str]:
    """Return the module search path for probes: our own packages, then those of users' kernels from the settings.

    An interpreter named in the settings has ours itself.
    """
    parts = ("" if settings.python else _ROOT, settings.environment.get(_PYTHONPATH, ""))
    path = ":".join(part for part in parts if part)
    return {_PYTHONPATH: path} if path else {}


def cores_of(unit: UnitType, units: int) -> int:
    """Return how many cores units have together; a part of a core is a time share of one."""
    return max(1, -(-unit.unit.cpu_milli // _MILLI)) * units


def mark_of(task: Task, centre: str) -> JobMark:
    """Return the mark of a task's job, in the task's current epoch."""
    return JobMark(centre, task.metadata.name, task.metadata.uid, task.status.epoch, task.spec.is_probe)


def counts_of(task: Task) -> tuple[int, ...]:
    """Return the unit counts that a probe runs on, one run each; by default those that it holds."""
    held = task.status.units or 1
    return tuple(sorted({count for count in task.spec.units if 1 <= count <= held})) or (held,)


def result_file(units: int) -> str:
    """Return the file for a probe's results on this many units."""
    return f"result-{units}.json"


def order_of(  # noqa: PLR0917 - the last two are for few tasks
    task: Task,
    unit: UnitType,
    settings: CentreSettings,
    folder: Path,
    probe: ProbeTask | None = None,
    secrets: Mapping[str, str] | None = None,
) -> JobOrder:
    """Return the order for a task; raise CentreError for a task that cannot be run.

    `secrets` are the values of those that its program names, by variable.
    """
    spec, mark, units = task.spec, mark_of(task, settings.centre), task.status.units or 1
    if spec.program.kind is ProgramKind.PROBE:
        run = _probe(task, unit, probe, settings)
    elif spec.program.kind is ProgramKind.SQL and spec.program.tables:
        run = _query(task, unit, settings)
    else:
        run = _run_of(task, spec.program, python_of(settings))
    # A probe's measurements are the centre's: its submitter does not control its environment.
    own = {} if spec.is_probe else spec.program.environment
    most_s = settings.probe_limit_s if spec.is_probe else settings.limit_s
    threads = dict.fromkeys(VARIABLES, str(cores_of(unit, units)))
    told = {
        "MILLRACE_TASK": task.metadata.name,
        "MILLRACE_UNIT": unit.name,
        "MILLRACE_UNITS": str(units),
        DEVICES: text_of(task.status.operator_devices),
        **_inputs_of(task),
        **_place_among(task, settings.centre),
    }
    return JobOrder(
        mark=mark,
        argv=run.argv,
        folder=folder / mark.job_name,
        unit=unit.name,
        units=units,
        files=run.files,
        environment={**threads, **settings.environment, **own, **(secrets or {}), **run.environment, **told},
        has_secrets=bool(secrets),
        image=run.image,
        limit_s=min(spec.limit_s or most_s, most_s),
        grace_s=settings.grace_s,
        output_limit_bytes=settings.output_limit_bytes,
    )


def _inputs_of(task: Task) -> dict[str, str]:
    """Return the variable that tells a task where its predecessors ran and left their data; {} without any."""
    ends = task.status.predecessors
    return {INPUTS: msgspec.json.encode(ends).decode()} if ends else {}


def _place_among(task: Task, centre: str) -> dict[str, str]:
    """Return the variables that tell a task of several centres which part of it this is; {} for any other."""
    centres = [member.centre for member in task.status.members]
    return {CENTRES: ",".join(centres), CENTRE_RANK: str(centres.index(centre))} if centre in centres else {}


def _run_of(task: Task, program: Program, python: str) -> Run:
    name, text = task.metadata.name, program.text.encode()
    match program.kind:
        case ProgramKind.SCRIPT if text:
            argv = ("./script",) if text.startswith(b"#!") else ("/bin/sh", "script")
            return Run((*argv, *program.arguments), {"script": text})
        case ProgramKind.CONTAINER if program.entry:
            return Run(program.arguments, image=program.entry)
        case ProgramKind.PYTHON if program.entry:
            files_ = {"call.py": _CALL.encode()} | ({f"{_module(program.entry)}.py": text} if text else {})
            return Run((python, "call.py", program.entry, *program.arguments), files_)
        case ProgramKind.PYTHON if text:
            return Run((python, "task.py", *program.arguments), {"task.py": text})
        case ProgramKind.SQL if text:
            files_ = {"query.py": _QUERY.encode(), "query.sql": text}
            return Run((python, "query.py", program.entry, *program.arguments), files_)
    raise CentreError(f"task {name}: a program of kind {program.kind.value} needs {_NEEDS[program.kind]}")


def _query(task: Task, unit: UnitType, settings: CentreSettings) -> Run:
    """Return a run of SQL over tables: as many workers as units, each with its unit's cores and memory."""
    program, held = task.spec.program, task.status.units or 1
    memory_bytes = unit.unit.memory_bytes
    query = Query(
        sql=program.text,
        tables={
            name: QueryTable(file=table.file, rows=table.rows, columns=table.columns)
            for name, table in program.tables.items()
        },
        sharded=next((name for name, table in program.tables.items() if table.is_sharded), ""),
        workers=min(held, len(settings.sql.workers)) if settings.sql.workers else held,
        threads=cores_of(unit, 1),
        memory_bytes=max(int(_SHARE * memory_bytes), _LEAST_BYTES) if memory_bytes else MOST_BYTES,
        addresses=settings.sql.workers,
        **_switch_of(task, settings, held),
        spark="" if settings.sql.spark is None else settings.sql.spark.master or HERE,
        deadline_s=min(task.spec.limit_s or settings.limit_s, settings.limit_s),
    )
    environment = python_path(settings)
    spark = settings.sql.spark
    try:
        if settings.sql.secret_file is not None:
            environment[SECRET] = read_secret(Path(settings.sql.secret_file)).hex()
        if spark is not None and spark.settings_file is not None:
            environment[SPARK_SETTINGS] = json.dumps(read_properties(Path(spark.settings_file)))
    except RunError as error:
        raise CentreError(f"sql: {error}") from None
    argv = (python_of(settings), "-m", "controller.acceleration.running.tasks.process")
    return Run(argv, {QUERY_FILE: msgspec.json.encode(query)}, environment)


def _switch_of(task: Task, settings: CentreSettings, held: int) -> dict[str, Any]:
    """Return what a query needs for sums in switches, or why it does without them."""
    sql, hosts = settings.sql, settings.hosts[:held]
    if not any(chosen.by_switch for chosen in task.status.operator_devices):
        return {}
    if sql.job_service is None or len(sql.workers) < held or len(hosts) < held:
        return {"no_switch": "the centre has no job service, or not a worker on each of its hosts"}
    # A name of its own for each attempt: workers of an earlier one must not be taken for members.
    return {"job": f"{task.metadata.uid[:40]}-{task.status.epoch}", "job_service": sql.job_service, "hosts": hosts}


_SHARE: Final = 0.8
"""Share of a unit's memory that a worker's tables may take; the rest is the process's own."""
_LEAST_BYTES: Final = 1 << 26
_NEEDS: Final = {
    ProgramKind.PYTHON: "an entry, module:function, or a text",
    ProgramKind.SCRIPT: "a text",
    ProgramKind.CONTAINER: "an entry: its image",
    ProgramKind.SQL: "a text",
    ProgramKind.PROBE: "a probe task",
}


def _module(entry: str) -> str:
    """Return the file name, without suffix, that an entry's module must have; raise CentreError."""
    module = entry.partition(":")[0]
    if not module.isidentifier():
        raise CentreError(f"entry {entry!r}: with a text, the module is a single name, such as task:main")
    return module


def _probe(task: Task, unit: UnitType, probe: ProbeTask | None, settings: CentreSettings) -> Run:
    """Return a run of a probe, once for each number of units; the worst exit code is the job's."""
    if probe is None:
        raise CentreError(f"task {task.metadata.name}: there is no ProbeTask {task.spec.program.entry}")
    counts = counts_of(task)
    limit_s = min(task.spec.limit_s or settings.probe_limit_s, settings.probe_limit_s)
    lines = ["worst=0"]
    for units in counts:
        words = [
            "-m controller.probing.running",
            PROBE_FILE,
            f"--units {units} --cores {cores_of(unit, units)} --repeat {task.spec.repetitions}",
            # The runner reports a hanging kernel by name before the engine ends the whole job.
            f"--deadline-s {0.9 * limit_s / len(counts):g} --out {result_file(units)}",
        ]
        lines.append(f'"$MILLRACE_PYTHON" {" ".join(words)} || worst=$?')
    content = {
        "run.sh": "\n".join((*lines, "exit $worst\n")).encode(),
        PROBE_FILE: files.dumps(probe, as_json=True).encode(),
    }
    return Run(("/bin/sh", "run.sh"), content, {"MILLRACE_PYTHON": python_of(settings)} | python_path(settings))
