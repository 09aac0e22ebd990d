"""Snapshots as messages, and what else is asked of a collector once: its status; what it receives about jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from collectors.feed import feed_pb2 as messages
from collectors.feed.columns import Columns, put, take
from collectors.feed.keys import flow_columns_out, flows_in, flows_out, keyed, pick, routes_in, routes_out
from collectors.feed.links import read_links, write_links
from collectors.feed.statuses import statuses_of, write_statuses
from collectors.state.path_states import PathStates
from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    CollectorStatus,
    FlowKey,
    JobKey,
    JobNote,
    JobState,
    PathState,
    ReporterState,
    Snapshot,
)
from dataplane.load import load_pb2
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.rpc.errors import MessageError
from dataplane.rpc.values import Mirror

_PATHS: Final = Columns(PathState, messages.Paths, others=("flow", "switches"))
_REPORTERS: Final = Columns(ReporterState, messages.Reporters)
_CLOCKS: Final = Columns(ClockState, messages.Clocks)
_JOB: Final = tuple(field.name for field in fields(JobState) if field.name not in {"key", "children"})
_CHILD: Final = tuple(field.name for field in fields(ChildState) if field.name != "key")
_NOTE: Final = tuple(field.name for field in fields(JobNote))
_STATUS: Final = ("taken_ns", "last_problem")
_LOAD: Final = Mirror(DaemonLoad, load_pb2.DaemonLoad)


def snapshot_message(snapshot: Snapshot) -> messages.Snapshot:
    """Return a snapshot as a message."""
    message = messages.Snapshot(taken_ns=snapshot.taken_ns)
    write_links(message.links, snapshot.links)
    _write_paths(message.paths, snapshot.paths)
    _REPORTERS.write(message.reporters, list(snapshot.reporters.values()))
    _CLOCKS.write(message.clocks, list(snapshot.clocks.values()))
    for job in snapshot.jobs.values():
        _write_job(message.jobs.add(), job)
    write_statuses(message.statuses, snapshot.statuses)
    return message


def snapshot_of(message: messages.Snapshot) -> Snapshot:
    """Return the snapshot of a message; raise MessageError for columns that do not fit and figures that cannot be."""
    reporters = list(_REPORTERS.read(message.reporters, len(message.reporters.node_id)))
    clocks = list(_CLOCKS.read(message.clocks, len(message.clocks.node_id)))
    jobs = [_job_of(job) for job in message.jobs]
    return Snapshot(
        message.taken_ns,
        read_links(message.links),
        _paths_of(message.paths),
        keyed("reporter", [(state.node_id, state.hw_id) for state in reporters], reporters),
        keyed("clock", [state.node_id for state in clocks], clocks),
        keyed("job", [job.key for job in jobs], jobs),
        statuses_of(message.statuses),
    )


def _write_paths(message: messages.Paths, paths: Mapping[FlowKey, PathState]) -> None:
    columns = paths.columns() if isinstance(paths, PathStates) else None
    if columns is None:
        flows_out(message.flows, list(paths))
        message.route.extend(routes_out(message.routes, [path.switches for path in paths.values()]))
        _PATHS.write(message, list(paths.values()))
        return
    flow_columns_out(message.flows, columns.flows)
    routes = routes_out(message.routes, [path.switches for path in columns.flows.paths])
    message.route.extend([routes[path] for path in columns.flows.path.tolist()])
    _PATHS.write_numbers(message, columns.figures)


def _paths_of(message: messages.Paths) -> dict[FlowKey, PathState]:
    flows, routes = flows_in(message.flows), pick("Paths.route", routes_in(message.routes), message.route)
    if len(flows) != len(routes):
        raise MessageError(f"Paths.route has {len(routes)} entries for {len(flows)} rows")
    return keyed("flow", flows, list(_PATHS.read(message, len(flows), flow=flows, switches=routes)))


def _write_job(message: messages.Job, job: JobState) -> None:
    message.job, message.switch = job.key.job, job.key.switch
    put(message, job, _JOB)
    for child in job.children:
        put(message.children.add(number=child.key.number, name=child.key.name), child, _CHILD)


def _job_of(message: messages.Job) -> JobState:
    job, switch = message.job, message.switch
    children = [
        ChildState(ChildKey(job, switch, child.number, child.name), *take(child, _CHILD)) for child in message.children
    ]
    return JobState(JobKey(job, switch), *[*take(message, _JOB), tuple(children)])


def notes_message(notes: Mapping[int, JobNote]) -> messages.JobNotes:
    """Return what is known of jobs, by their numbers, as a message."""
    message = messages.JobNotes()
    for job, note in notes.items():
        put(message.notes.add(job=job), note, _NOTE)
    return message


def notes_of(message: messages.JobNotes) -> dict[int, JobNote]:
    """Return what a message says of jobs; raise MessageError where it has one twice."""
    return keyed("job", [note.job for note in message.notes], [JobNote(*take(note, _NOTE)) for note in message.notes])


def status_message(status: CollectorStatus) -> messages.CollectorStatus:
    """Return a collector's status as a message."""
    message = messages.CollectorStatus(counters=status.counters, load=_LOAD.message(status.load))
    put(message, status, _STATUS)
    return message


def status_of(message: messages.CollectorStatus) -> CollectorStatus:
    """Return the status of a message."""
    taken_ns, last_problem = take(message, _STATUS)
    load = _LOAD.value(message.load) if message.HasField("load") else NO_LOAD
    return CollectorStatus(taken_ns, dict(message.counters), last_problem, load)
