"""Events of Spark's listener bus, one JSON object a line, as its JsonProtocol writes them: only the fields needed.

Other fields, among them all properties but the execution's number, are not decoded, so that nothing keeps or shows the
credentials that they may hold.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Struct, field

Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
"""A number, size or time; sums of them stay finite."""


class Head(Struct):
    """Any event."""

    event: str = field(name="Event")


class LogStart(Struct):
    """SparkListenerLogStart, the first event."""

    version: str = field(name="Spark Version")


class ApplicationStart(Struct):
    """SparkListenerApplicationStart."""

    name: str = field(name="App Name")
    start_ms: Amount = field(name="Timestamp")
    number: str | None = field(name="App ID", default=None)


class ApplicationEnd(Struct):
    """SparkListenerApplicationEnd."""

    end_ms: Amount = field(name="Timestamp")


class ExecutorInfo(Struct):
    """Host and cores of an executor."""

    host: str = field(name="Host")
    cores: Amount = field(name="Total Cores")


class ExecutorAdded(Struct):
    """SparkListenerExecutorAdded."""

    number: str = field(name="Executor ID")
    info: ExecutorInfo = field(name="Executor Info")


class ExecutorRemoved(Struct):
    """SparkListenerExecutorRemoved."""

    number: str = field(name="Executor ID")


class Properties(Struct):
    """The only property of a job that is read: the execution of SQL that it belongs to."""

    execution: str | None = field(name="spark.sql.execution.id", default=None)


class JobStart(Struct):
    """SparkListenerJobStart."""

    stages: list[Amount] = field(name="Stage IDs")
    properties: Properties | None = field(name="Properties", default=None)


class StageInfo(Struct):
    """Times of a stage's attempt, ms since 1970."""

    number: Amount = field(name="Stage ID")
    attempt: Amount = field(name="Stage Attempt ID", default=0)
    name: str = field(name="Stage Name", default="")
    start_ms: Amount | None = field(name="Submission Time", default=None)
    end_ms: Amount | None = field(name="Completion Time", default=None)


class StageCompleted(Struct):
    """SparkListenerStageCompleted."""

    info: StageInfo = field(name="Stage Info")


class Reason(Struct):
    """End of a task: Success, or a failure's name."""

    reason: str = field(name="Reason")


class Accumulable(Struct):
    """A task's addition to an accumulator; those of plans' nodes have the metadata `sql`."""

    number: Amount = field(name="ID")
    update: msgspec.Raw = field(name="Update", default_factory=msgspec.Raw)
    metadata: str | None = field(name="Metadata", default=None)


class TaskInfo(Struct):
    """Host and accumulators of a task."""

    host: str = field(name="Host", default="")
    accumulables: list[Accumulable] = field(name="Accumulables", default_factory=list)


class InputMetrics(Struct):
    """Input of a task from storage."""

    nbytes: Amount = field(name="Bytes Read", default=0)
    rows: Amount = field(name="Records Read", default=0)


class ReadMetrics(Struct):
    """Input of a task from shuffles."""

    remote: Amount = field(name="Remote Bytes Read", default=0)
    local: Amount = field(name="Local Bytes Read", default=0)
    rows: Amount = field(name="Total Records Read", default=0)


class WriteMetrics(Struct):
    """Output of a task for shuffles; the time is in ns."""

    nbytes: Amount = field(name="Shuffle Bytes Written", default=0)
    rows: Amount = field(name="Shuffle Records Written", default=0)


class TaskMetrics(Struct):
    """Times of a task: run and garbage collection in ms, CPU in ns."""

    run_ms: Amount = field(name="Executor Run Time", default=0)
    cpu_ns: Amount = field(name="Executor CPU Time", default=0)
    gc_ms: Amount = field(name="JVM GC Time", default=0)
    spilled: Amount = field(name="Disk Bytes Spilled", default=0)
    input: InputMetrics = field(name="Input Metrics", default_factory=InputMetrics)
    read: ReadMetrics = field(name="Shuffle Read Metrics", default_factory=ReadMetrics)
    written: WriteMetrics = field(name="Shuffle Write Metrics", default_factory=WriteMetrics)


class TaskEnd(Struct):
    """SparkListenerTaskEnd."""

    stage: Amount = field(name="Stage ID")
    info: TaskInfo = field(name="Task Info")
    attempt: Amount = field(name="Stage Attempt ID", default=0)
    end: Reason | None = field(name="Task End Reason", default=None)
    metrics: TaskMetrics | None = field(name="Task Metrics", default=None)


class Metric(Struct):
    """A counter of a plan's node."""

    name: str
    number: Amount = field(name="accumulatorId")
    kind: str = field(name="metricType", default="sum")


class PlanInfo(Struct):
    """A node of a physical plan."""

    name: str = field(name="nodeName")
    text: str = field(name="simpleString", default="")
    children: list[PlanInfo] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)


class ExecutionStart(Struct):
    """SparkListenerSQLExecutionStart."""

    number: Amount = field(name="executionId")
    plan: PlanInfo = field(name="sparkPlanInfo")
    description: str = ""
    start_ms: Amount = field(name="time", default=0)


class AdaptiveUpdate(Struct):
    """SparkListenerSQLAdaptiveExecutionUpdate: a plan that replaces the former one."""

    number: Amount = field(name="executionId")
    plan: PlanInfo = field(name="sparkPlanInfo")


class DriverUpdates(Struct):
    """SparkListenerDriverAccumUpdates: additions of the driver, as accumulator and amount."""

    number: Amount = field(name="executionId")
    updates: list[tuple[int, int]] = field(name="accumUpdates")


class ExecutionEnd(Struct):
    """SparkListenerSQLExecutionEnd; an error has a text since Spark 3.4."""

    number: Amount = field(name="executionId")
    end_ms: Amount = field(name="time", default=0)
    error: str | None = field(name="errorMessage", default=None)


Event = (
    LogStart
    | ApplicationStart
    | ApplicationEnd
    | ExecutorAdded
    | ExecutorRemoved
    | JobStart
    | StageCompleted
    | TaskEnd
    | ExecutionStart
    | AdaptiveUpdate
    | DriverUpdates
    | ExecutionEnd
)
_SQL: Final = "org.apache.spark.sql.execution.ui."
_DECODERS: Final = {
    name.encode(): msgspec.json.Decoder(kind)
    for name, kind in {
        "SparkListenerLogStart": LogStart,
        "SparkListenerApplicationStart": ApplicationStart,
        "SparkListenerApplicationEnd": ApplicationEnd,
        "SparkListenerExecutorAdded": ExecutorAdded,
        "SparkListenerExecutorRemoved": ExecutorRemoved,
        "SparkListenerJobStart": JobStart,
        "SparkListenerStageCompleted": StageCompleted,
        "SparkListenerTaskEnd": TaskEnd,
        f"{_SQL}SparkListenerSQLExecutionStart": ExecutionStart,
        f"{_SQL}SparkListenerSQLAdaptiveExecutionUpdate": AdaptiveUpdate,
        f"{_SQL}SparkListenerDriverAccumUpdates": DriverUpdates,
        f"{_SQL}SparkListenerSQLExecutionEnd": ExecutionEnd,
    }.items()
}
_HEAD: Final = msgspec.json.Decoder(Head)
_PREFIX: Final = b'{"Event":"'


def decode(line: bytes) -> Event | None:
    """Return a line's event, None for kinds that are not needed; raise msgspec.MsgspecError for anything else."""
    # Spark writes the name first; only other writers' lines are decoded twice.
    if line.startswith(_PREFIX):
        name = line[len(_PREFIX) : line.find(b'"', len(_PREFIX))]
    else:
        name = _HEAD.decode(line).event.encode()
    decoder = _DECODERS.get(name)
    if decoder is None:
        if not line.rstrip().endswith(b"}"):
            raise msgspec.DecodeError("the line is cut")
        return None
    event: Event = decoder.decode(line)
    return event


def amount_of(update: msgspec.Raw) -> int:
    """Return an addition, which is a number or a number's text; 0 for anything else and below 0, as metrics begin."""
    text = bytes(update).strip(b'"')
    return int(text) if text.isdigit() and len(text) < 20 else 0
