"""Readers of published traces; errors name file and line.

`openb` is Alibaba's cluster trace with shared GPUs (2023), its nodes and its pods, `swf` the Standard Workload
Format of parallel batch systems, `blocks` the block requests of CloudPhysics in libCacheSim's format, `spotri` task
graphs with CPU and GPU times, `azure_runs` a benchmark's runs on virtual machines, `duty_cycles` the load of devices.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from controller.cluster.hardware.requests import WHOLE, DeviceRequest, Request
from controller.cluster.hardware.values import Device, Node
from controller.cluster.workloads.errors import WorkloadError
from controller.cluster.workloads.lines import MIB, Record, read_csv, read_words
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
_SPOTRI: Final = ("task", "cpu_s", "gpu_s", "predecessors")
_RUNS: Final = ("value", "runtime", "starttime", "VM_id")
_DUTY: Final = ("device", "time_s", "busy")
_UNKNOWN: Final = -1
"""Marker of unknown values in SWF and spotri."""


def openb_nodes(path: Path) -> Iterator[Node]:
    """Yield the nodes of an openb list in its order; it does not give their GPUs' memory."""
    for record in read_csv(path, _OPENB_NODES):
        count, model = record.integer("gpu"), record.fields["model"]
        if bool(count) != bool(model):
            raise record.error(f"gpu is {count} and model {model!r}")
        memory = MemoryMedium(MediumKind.DRAM, record.integer("memory_mib", 1) * MIB)
        gpus = tuple(Device(number, DeviceKind.GPU, model) for number in range(count))
        yield Node(record.text("sn"), record.integer("cpu_milli"), (memory,), gpus)


def openb_pods(path: Path) -> Iterator[Task]:
    """Yield the pods of an openb list in its order; times are relative to the first one's creation."""
    first: int | None = None
    for record in read_csv(path, _OPENB):
        created_s = record.integer("creation_time")
        first = created_s if first is None else first
        if created_s < first:
            raise record.error(f"creation_time is {created_s}, before the first pod's {first}")
        scheduled = record.fields["scheduled_time"]
        end_s = record.integer("deletion_time", created_s)
        start_s = record.integer("scheduled_time", created_s) if scheduled else None
        if start_s is not None and end_s < start_s:
            raise record.error(f"deletion_time is {end_s}, before scheduled_time {start_s}")
        request = _openb_request(record)
        kind = request.devices[0].kind if request.devices else DeviceKind.CPU
        yield Task(
            name=record.text("name"),
            arrival_ns=(created_s - first) * NS_PER_S,
            request=request,
            duration_ns=None if start_s is None else {kind: (end_s - start_s) * NS_PER_S},
            labels={"qos": record.text("qos"), "phase": record.text("pod_phase")},
        )


def _openb_request(record: Record) -> Request:
    count, thousandths = record.integer("num_gpu"), record.integer("gpu_milli")
    devices: tuple[DeviceRequest, ...] = ()
    if count:
        models = frozenset(filter(None, record.fields["gpu_spec"].split("|")))
        if not 0 < thousandths <= WHOLE or (count > 1 and thousandths != WHOLE):
            raise record.error(f"{count} GPUs of {thousandths} thousandths each cannot be requested")
        devices = (DeviceRequest(DeviceKind.GPU, count, thousandths, models),)
    elif thousandths:
        raise record.error(f"gpu_milli is {thousandths} without a GPU")
    return Request(record.integer("cpu_milli"), record.integer("memory_mib") * MIB, devices)


def swf_jobs(path: Path) -> Iterator[Task]:
    """Yield the jobs of a file in the Standard Workload Format; a job's processors are cores, one per instance.

    Jobs with unknown run time or processors (-1) are refused as useless; an unknown requested time is None.
    """
    for record in read_words(path, _SWF, comment=";"):
        processors = record.integer("processors", _UNKNOWN)
        if processors == _UNKNOWN:
            processors = record.integer("requested_processors", 1)
        requested_s = record.integer("requested_time", _UNKNOWN)
        # The format counts memory in kilobytes per processor.
        memory_kib = max(record.integer("requested_memory", _UNKNOWN), 0)
        yield Task(
            name=str(record.integer("job")),
            arrival_ns=record.integer("submit") * NS_PER_S,
            request=Request(cpu_milli=WHOLE, memory_bytes=memory_kib << 10),
            duration_ns={DeviceKind.CPU: record.integer("run") * NS_PER_S},
            limit_ns=None if requested_s == _UNKNOWN else requested_s * NS_PER_S,
            instances=_at_least_one(record, processors),
        )


def _at_least_one(record: Record, processors: int) -> int:
    if processors < 1:
        raise record.error(f"invalid job: {processors} processors")
    return processors


def block_requests(path: Path) -> Iterator[BlockRequest]:
    """Yield the requests of a block trace; times are relative to the first one, from timestamps in whole seconds."""
    first: int | None = None
    before = 0
    for record in read_csv(path, _BLOCKS):
        if (version := record.integer("version")) != 1:
            raise record.error(f"version is {version}, not 1")
        operation, time_s = record.text("op"), record.integer("time")
        if operation not in _OPERATIONS:
            raise record.error(f"op is {operation!r}, not one of {', '.join(_OPERATIONS)}")
        first, before = time_s if first is None else first, max(before, time_s)
        if time_s < before:
            raise record.error(f"time is {time_s}, before {before} of an earlier line")
        size, block = record.integer("size", 1), record.integer("lbn")
        yield BlockRequest((time_s - first) * NS_PER_S, block, size, _OPERATIONS[operation])


def spotri_graph(path: Path) -> TaskGraph:
    """Return a task graph: a task's id, CPU seconds, GPU seconds (-1: no GPU can run it) and predecessors by id.

    A line without predecessors may lack the last field. The file has no sizes of edges.
    """
    tasks, edges = [], []
    for record in read_words(path, _SPOTRI, optional=1):
        name, gpu_s = record.text("task"), record.real("gpu_s", float(_UNKNOWN))
        times = {DeviceKind.CPU: round(record.real("cpu_s") * NS_PER_S)}
        if gpu_s >= 0:
            times[DeviceKind.GPU] = round(gpu_s * NS_PER_S)
        elif gpu_s != _UNKNOWN:
            raise record.error(f"gpu_s is {gpu_s}, neither a time nor -1")
        tasks.append(Task(name, 0, Request(cpu_milli=WHOLE), times))
        edges += [Edge(before, name) for before in record.fields["predecessors"].split(",") if before]
    if not tasks:
        raise WorkloadError(f"{path}: no tasks")
    return TaskGraph(path.name, tuple(tasks), tuple(edges))


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
        yield Run(record.text("VM_id"), start_ns, round(record.real("runtime") * NS_PER_S), record.real("value"))


def duty_cycles(path: Path) -> tuple[DutyCycle, ...]:
    """Return the load of devices: a CSV file of device, seconds from the start, and share of time busy."""
    by_device: dict[str, tuple[list[int], list[float]]] = {}
    for record in read_csv(path, _DUTY):
        times, busy = by_device.setdefault(record.text("device"), ([], []))
        time_ns, share = round(record.real("time_s") * NS_PER_S), record.real("busy")
        if share > 1:
            raise record.error(f"busy is {share}, more than 1")
        if times and time_ns <= times[-1]:
            raise record.error(f"time_s is {record.fields['time_s']}, not after the device's earlier line")
        times.append(time_ns)
        busy.append(share)
    return tuple(DutyCycle(name, tuple(times), tuple(busy)) for name, (times, busy) in by_device.items())
