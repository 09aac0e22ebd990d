"""Readers of published traces; errors name file and line.

`openb` is Alibaba's cluster trace with shared GPUs (2023), its nodes and its pods, `swf` the Standard Workload
Format of parallel batch systems, `blocks` the block requests of CloudPhysics in libCacheSim's format, `spotri` task
graphs with CPU and GPU times, `azure_runs` a benchmark's runs on virtual machines, `duty_cycles` the load of devices.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from controller.cluster.hardware.requests import WHOLE, DeviceRequest, Request
from controller.cluster.hardware.values import Device, Node
from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.lines import MIB, MOST_S, Record, read_csv, read_words
from controller.cluster.workloads.values import (
    BlockRequest,
    DutyCycle,
    Edge,
    Run,
    Task,
    TaskGraph,
)
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DeviceKind, MediumKind, MemoryMedium

_OPENB: Final = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase"),
    *("creation_time", "deletion_time", "scheduled_time"),
)
_OPENB_NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_SWF: Final = (
    *("job", "submit", "wait", "run", "processors", "cpu_time", "memory", "requested_processors", "requested_time"),
    *("requested_memory", "status", "user", "group", "executable", "queue", "partition", "preceding", "think_time"),
)
_BLOCKS: Final = ("version", "time", "op", "size", "lbn")
_OPERATIONS: Final = {"2a": True, "28": False}
"""SCSI commands: WRITE(10), READ(10)."""
_SCSI_COMMAND: Final = re.compile("[0-9a-f]{2}")
_SPOTRI: Final = ("task", "cpu_s", "gpu_s", "predecessors")
_RUNS: Final = ("value", "runtime", "starttime", "VM_id")
_DUTY: Final = ("device", "time_s", "busy")
_UNKNOWN: Final = -1
"""Marker of unknown values in SWF and spotri."""
_SWF_OPTIONAL: Final = 7
"""Fields after the status, which older logs lack."""
_CANCELLED: Final = 5
"""Status of a cancelled SWF job."""
_MOST_CPU_MILLI: Final = 10**12
_MOST_MEMORY_MIB: Final = 1 << 30
_MOST_DEVICES: Final = 1024
_MOST_PROCESSORS: Final = 1 << 20
_MOST_SWF_MEMORY_KIB: Final = 1 << 32
"""4 TiB for each processor, so that a whole job's memory is an int64 in bytes."""


def openb_nodes(path: Path) -> Iterator[Node]:
    """Yield the nodes of an openb list in its order; it does not give their GPUs' memory."""
    lines: dict[str, int] = {}
    for record in read_csv(path, _OPENB_NODES):
        count, model = record.integer("gpu", 0, _MOST_DEVICES), record.fields["model"]
        _refuse_repeated(record, "sn", lines)
        if bool(count) != bool(model):
            raise record.error(f"gpu is {count} and model {model!r}")
        memory = MemoryMedium(MediumKind.DRAM, record.integer("memory_mib", 1, _MOST_MEMORY_MIB) * MIB)
        gpus = tuple(Device(number, DeviceKind.GPU, model) for number in range(count))
        yield Node(record.text("sn"), record.integer("cpu_milli", 0, _MOST_CPU_MILLI), (memory,), gpus)


def openb_pods(path: Path) -> Iterator[Task]:
    """Yield the pods of an openb list in its order; times are relative to the first one's creation."""
    first: int | None = None
    lines: dict[str, int] = {}
    for record in read_csv(path, _OPENB):
        _refuse_repeated(record, "name", lines)
        created_ns = record.time_ns("creation_time")
        first = created_ns if first is None else first
        if created_ns < first:
            raise record.error(f"creation_time is {record.fields['creation_time']}, before the first pod's")
        end_ns = record.time_ns("deletion_time")
        start_ns = record.time_ns("scheduled_time") if record.fields["scheduled_time"] else None
        for earlier, time_ns, later, end in (
            ("creation_time", created_ns, "scheduled_time", start_ns),
            ("creation_time", created_ns, "deletion_time", end_ns),
            ("scheduled_time", start_ns, "deletion_time", end_ns),
        ):
            if time_ns is not None and end is not None and end < time_ns:
                raise record.error(f"{later} is {record.fields[later]}, before {earlier} {record.fields[earlier]}")
        request = _openb_request(record)
        kind = request.devices[0].kinds[0] if request.devices else DeviceKind.CPU
        yield Task(
            name=record.text("name"),
            arrival_ns=created_ns - first,
            request=request,
            duration_ns=None if start_ns is None else {kind: end_ns - start_ns},
            labels={"qos": record.text("qos"), "phase": record.text("pod_phase")},
        )


def _openb_request(record: Record) -> Request:
    count, thousandths = record.integer("num_gpu", 0, _MOST_DEVICES), record.integer("gpu_milli")
    devices: tuple[DeviceRequest, ...] = ()
    if count:
        models = frozenset(filter(None, record.fields["gpu_spec"].split("|")))
        if not 0 < thousandths <= WHOLE or (count > 1 and thousandths != WHOLE):
            raise record.error(f"{count} GPUs of {thousandths} thousandths each cannot be requested")
        devices = (DeviceRequest(DeviceKind.GPU, count, thousandths, models),)
    elif thousandths:
        raise record.error(f"gpu_milli is {thousandths} without a GPU")
    memory_bytes = record.integer("memory_mib", 0, _MOST_MEMORY_MIB) * MIB
    return Request(record.integer("cpu_milli", 0, _MOST_CPU_MILLI), memory_bytes, devices)


def _refuse_repeated(record: Record, column: str, lines: dict[str, int]) -> None:
    """Note a name's line; raise WorkloadError if it has one already."""
    name = record.text(column)
    if (line := lines.setdefault(name, record.line)) != record.line:
        raise record.error(f"{column} {name} is that of line {line}, too")


def swf_jobs(path: Path, skipped: Counter[str] | None = None) -> tuple[Task, ...]:
    """Return the jobs of a file in the Standard Workload Format by submission; processors are cores, one per instance.

    Jobs that never ran or lack a time or processors, and all but the first line of a job, are counted in `skipped` by
    reason. An unknown requested time is None.
    """
    skipped = Counter() if skipped is None else skipped
    jobs: dict[str, Task] = {}
    for record in read_words(path, _SWF, optional=_SWF_OPTIONAL, missing=str(_UNKNOWN), comments=";#"):
        job = _swf_job(record)
        if isinstance(job, str):
            skipped[job] += 1
        elif job.name in jobs:
            # A job that was swapped out or restarted has a line for the whole, then one for each part.
            skipped["a further line of its job, such as a partial execution"] += 1
        else:
            jobs[job.name] = job
    return tuple(sorted(jobs.values(), key=lambda job: job.arrival_ns))


def _swf_job(record: Record) -> Task | str:
    """Return a line's job, or the reason why it cannot be replayed."""
    name, status = str(record.integer("job")), record.integer("status", _UNKNOWN)
    submitted_ns, run_ns, limit_ns = (record.time_ns(field, _UNKNOWN) for field in ("submit", "run", "requested_time"))
    processors, requested = (
        record.integer(field, _UNKNOWN, _MOST_PROCESSORS) for field in ("processors", "requested_processors")
    )
    # The format counts memory in kilobytes per processor.
    memory_kib = max(record.integer("requested_memory", _UNKNOWN, _MOST_SWF_MEMORY_KIB), 0)
    if status == _CANCELLED and run_ns <= 0:
        return "cancelled before it began"
    if submitted_ns < 0:
        return "its submission time is unknown"
    if run_ns < 0:
        return "its run time is unknown"
    if (instances := processors if processors > 0 else requested) < 1:
        return "its number of processors is unknown"
    return Task(
        name=name,
        arrival_ns=submitted_ns,
        request=Request(cpu_milli=WHOLE, memory_bytes=memory_kib << 10),
        duration_ns={DeviceKind.CPU: run_ns},
        limit_ns=None if limit_ns < 0 else limit_ns,
        instances=instances,
    )


def block_requests(path: Path, skipped: Counter[str] | None = None) -> Iterator[BlockRequest]:
    """Yield the requests of a block trace; times are relative to the first one, from timestamps in whole seconds.

    SCSI commands other than READ(10) and WRITE(10) are counted in `skipped`.
    """
    first: int | None = None
    before = 0
    for record in read_csv(path, _BLOCKS):
        if (version := record.integer("version")) != 1:
            raise record.error(f"version is {version}, not 1")
        operation, time_ns = record.text("op").lower(), record.integer("time", 0, MOST_S) * NS_PER_S
        before = max(before, time_ns)
        if time_ns < before:
            raise record.error(f"time is {record.fields['time']}, before {before // NS_PER_S} of an earlier line")
        if not _SCSI_COMMAND.fullmatch(operation):
            raise record.error(f"op is {operation[:40]!r}, not a SCSI command of two hexadecimal digits")
        if operation not in _OPERATIONS:
            if skipped is not None:
                skipped[f"SCSI command {operation}, neither READ(10) nor WRITE(10)"] += 1
            continue
        first = time_ns if first is None else first
        size, block = record.integer("size", 1), record.integer("lbn")
        yield BlockRequest(time_ns - first, block, size, _OPERATIONS[operation])


def spotri_graph(path: Path) -> TaskGraph:
    """Return a task graph: a task's id, CPU seconds, GPU seconds (-1: no GPU can run it) and predecessors by id.

    A line without predecessors may lack the last field. The file has no sizes of edges.
    """
    tasks: dict[str, Task] = {}
    edges: list[tuple[Record, Edge]] = []
    lines: dict[str, int] = {}
    for record in read_words(path, _SPOTRI, optional=1):
        _refuse_repeated(record, "task", lines)
        name, gpu_ns = record.text("task"), record.time_ns("gpu_s", _UNKNOWN)
        times = {DeviceKind.CPU: record.time_ns("cpu_s")}
        if gpu_ns >= 0:
            times[DeviceKind.GPU] = gpu_ns
        elif gpu_ns != _UNKNOWN * NS_PER_S:
            raise record.error(f"gpu_s is {record.fields['gpu_s']}, neither a time nor -1")
        tasks[name] = Task(name, 0, Request(cpu_milli=WHOLE), times)
        before = [word for word in record.fields["predecessors"].split(",") if word]
        if repeated := next((word for word, count in Counter(before).items() if count > 1), None):
            raise record.error(f"task {name} has predecessor {repeated} more than once")
        edges += [(record, Edge(word, name)) for word in before]
    if not tasks:
        raise WorkloadError(f"{path}: no tasks")
    for record, edge in edges:
        if edge.src not in tasks:
            raise record.error(f"task {edge.dst} follows {edge.src}, but there is no task {edge.src}")
    return TaskGraph(path.name, tuple(tasks.values()), tuple(edge for _, edge in edges))


def azure_runs(path: Path) -> Iterator[Run]:
    """Yield a benchmark's runs on virtual machines, in the file's order; its times are taken as UTC."""
    for record in read_csv(path, _RUNS):
        text = record.text("starttime")
        try:
            start = datetime.fromisoformat(text).replace(tzinfo=UTC)
        except ValueError:
            raise record.error(f"starttime is {text!r}, not a time") from None
        # In integers: a float of today's seconds is exact only to some 240 ns.
        start_ns = (start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
        yield Run(record.text("VM_id"), start_ns, record.time_ns("runtime"), record.real("value"))


def duty_cycles(path: Path) -> tuple[DutyCycle, ...]:
    """Return the load of devices: a CSV file of device, seconds from the start, and share of time busy."""
    by_device: dict[str, tuple[list[int], list[float]]] = {}
    for record in read_csv(path, _DUTY):
        times, busy = by_device.setdefault(record.text("device"), ([], []))
        time_ns, share = record.time_ns("time_s"), record.real("busy")
        if share > 1:
            raise record.error(f"busy is {share}, more than 1")
        if times and time_ns <= times[-1]:
            raise record.error(f"time_s is {record.fields['time_s']}, not after the device's earlier line")
        times.append(time_ns)
        busy.append(share)
    return tuple(DutyCycle(name, tuple(times), tuple(busy)) for name, (times, busy) in by_device.items())
