"""Messages of snapshots, and of other one-off exchanges with a collector: its status, and job reports sent to it.

The columns of `LinkStates` and `PathStates` are sent and received unchanged, without building the state of any single
link or flow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np

from collectors.feed import feed_pb2 as messages
from collectors.feed import keys_pb2, links_pb2
from collectors.feed.columns import Columns, put, take
from collectors.feed.keys import MOST, keyed, link_places_out, links_in, routes_in, routes_out
from collectors.feed.packed import (
    Column,
    FloatColumn,
    MemberColumn,
    pack_integers,
    packed_columns,
    unpack_integers,
    unpack_places,
)
from collectors.feed.statuses import statuses_of, write_statuses
from collectors.state.link_states import LOAD_SOURCES, LOSS_SOURCES, LinkStates, link_states_of
from collectors.state.path_states import PathColumns, PathStates, columns_of
from collectors.statistics.columns import UNKNOWN, Integers, patched
from collectors.statistics.window import SOURCES
from collectors.values import (
    ChildKey,
    ChildState,
    ClockState,
    CollectorStatus,
    FlowKey,
    JobKey,
    JobNote,
    JobState,
    LinkState,
    PathState,
    ReporterState,
    Snapshot,
)
from dataplane.load import load_pb2
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.rpc.errors import MessageError
from dataplane.rpc.values import Mirror
from dataplane.topology.values import LinkKey

_LINKS: Final = packed_columns(
    LinkState,
    1,
    {
        "source": MemberColumn(SOURCES, links_pb2.DelaySource.DESCRIPTOR),
        "load_source": MemberColumn(LOAD_SOURCES, links_pb2.LoadSource.DESCRIPTOR, optional=True),
        "loss_source": MemberColumn(LOSS_SOURCES, links_pb2.LossSource.DESCRIPTOR, optional=True),
    },
)
_PATHS: Final = packed_columns(PathState, 2, {"gap_variation": FloatColumn(default=1.0)})
_ADDRESS_BYTES: Final = frozenset({4, 16})
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
    _write_paths(message.paths, columns_of(snapshot.paths))
    _REPORTERS.write(message.reporters, list(snapshot.reporters.values()))
    _write_rest(message, snapshot)
    return message


def changes_message(
    snapshot: Snapshot, changed: Integers, *, same_flows: bool, same_reporters: bool
) -> messages.Snapshot:
    """Return the changes up to a snapshot as a message: the links at these places, and what is not still the same."""
    message = messages.Snapshot(taken_ns=snapshot.taken_ns, same_reporters=same_reporters)
    message.changed_links.rows, message.changed_links.places = len(changed), pack_integers(changed)
    states = link_states_of(snapshot.links)
    for name, column in _LINKS.items():
        setattr(message.links, name, column.pack(states.columns[name][changed]))
    paths, message.paths.same_flows = columns_of(snapshot.paths), same_flows
    if same_flows:
        _write_path_figures(message.paths, paths)
    else:
        _write_paths(message.paths, paths)
    if not same_reporters:
        _REPORTERS.write(message.reporters, list(snapshot.reporters.values()))
    _write_rest(message, snapshot)
    return message


def _write_rest(message: messages.Snapshot, snapshot: Snapshot) -> None:
    _CLOCKS.write(message.clocks, list(snapshot.clocks.values()))
    for job in snapshot.jobs.values():
        _write_job(message.jobs.add(), job)
    write_statuses(message.statuses, snapshot.statuses)


def snapshot_of(message: messages.Snapshot) -> Snapshot:
    """Return the snapshot of a message; raise MessageError for columns that do not fit and impossible figures."""
    return _with_rest(message, read_links(message.links), _read_paths(message.paths), _read_reporters(message))


def changed_snapshot(last: Snapshot, message: messages.Snapshot) -> Snapshot:
    """Return a snapshot after the changes of a message; raise MessageError as `snapshot_of` does."""
    paths = message.paths
    return _with_rest(
        message,
        _changed_links(link_states_of(last.links), message.taken_ns - last.taken_ns, message),
        _changed_paths(columns_of(last.paths), paths) if paths.same_flows else _read_paths(paths),
        last.reporters if message.same_reporters else _read_reporters(message),
    )


def _with_rest(
    message: messages.Snapshot,
    links: Mapping[LinkKey, LinkState],
    paths: Mapping[FlowKey, PathState],
    reporters: Mapping[tuple[int, int], ReporterState],
) -> Snapshot:
    clocks = list(_CLOCKS.read(message.clocks, len(message.clocks.node_id)))
    jobs = [_job_of(job) for job in message.jobs]
    return Snapshot(
        message.taken_ns,
        links,
        paths,
        reporters,
        keyed("clock", [state.node_id for state in clocks], clocks),
        keyed("job", [job.key for job in jobs], jobs),
        statuses_of(message.statuses),
    )


def _read_reporters(message: messages.Snapshot) -> Mapping[tuple[int, int], ReporterState]:
    reporters = list(_REPORTERS.read(message.reporters, len(message.reporters.node_id)))
    return keyed("reporter", [(state.node_id, state.hw_id) for state in reporters], reporters)


def _changed_links(last: LinkStates, grown_ns: int, message: messages.Snapshot) -> LinkStates:
    """Return links after changes; of those that have not changed only the age has grown."""
    rows = message.changed_links.rows
    places = unpack_places("Snapshot.changed_links", message.changed_links.places, rows, last.places)
    columns, age_ns = dict(last.columns), last.integers("age_ns")
    columns["age_ns"] = np.where(age_ns == UNKNOWN, UNKNOWN, age_ns + grown_ns)
    for name, column in _LINKS.items():
        figures = column.unpack(f"Links.{name}", getattr(message.links, name), rows)
        columns[name] = patched(columns[name], places, figures)
    return LinkStates(last.places, columns)


def _changed_paths(last: PathColumns, message: messages.Paths) -> PathStates:
    """Return the paths of the same flows with new figures."""
    columns = replace(last, figures=_read_path_figures(message, len(last)))
    return PathStates(len(last), lambda: columns)


def write_links(message: links_pb2.Links, links: Mapping[LinkKey, LinkState]) -> None:
    """Put links with their states into a message."""
    states = link_states_of(links)
    link_places_out(message.links, states.places)
    for name, column in _LINKS.items():
        setattr(message, name, column.pack(states.columns[name]))


def read_links(message: links_pb2.Links) -> LinkStates:
    """Return the links of a message with their states; raise MessageError."""
    places = links_in(message.links)
    columns = {
        name: column.unpack(f"Links.{name}", getattr(message, name), len(places)) for name, column in _LINKS.items()
    }
    return LinkStates(places, columns)


def _write_paths(message: messages.Paths, columns: PathColumns) -> None:
    """Put flows with their paths into a message."""
    message.flows.rows = len(columns)
    message.flows.addresses.extend(columns.addresses)
    message.flows.src, message.flows.dst = pack_integers(columns.src), pack_integers(columns.dst)
    for name in MOST:
        setattr(message.flows, name, pack_integers(getattr(columns, name)))
    routes_out(message.routes, columns.routes)
    message.route = pack_integers(columns.route)
    _write_path_figures(message, columns)


def _write_path_figures(message: messages.Paths, columns: PathColumns) -> None:
    for name, column in _PATHS.items():
        setattr(message, name, column.pack(columns.figures[name]))


def _read_paths(message: messages.Paths) -> PathStates:
    """Return the flows of a message with their paths; raise MessageError."""
    flows, rows = message.flows, message.flows.rows
    addresses = _addresses_in(flows)
    # These are never left out, so that a message of many rows has as many bytes.
    src, dst = (unpack_places(f"FlowColumns.{name}", getattr(flows, name), rows, addresses) for name in ("src", "dst"))
    about = {
        name: unpack_integers(f"FlowColumns.{name}", getattr(flows, name), rows, most=most)
        for name, most in MOST.items()
    }
    _check_once(src * len(addresses) + dst, about["protocol"] << 32 | about["src_port"] << 16 | about["dst_port"])
    routes = routes_in(message.routes)
    columns = PathColumns(
        addresses,
        routes,
        src=src,
        dst=dst,
        **about,
        route=unpack_places("Paths.route", message.route, rows, routes),
        figures=_read_path_figures(message, rows),
    )
    return PathStates(rows, lambda: columns)


def _read_path_figures(message: messages.Paths, rows: int) -> Mapping[str, Column]:
    return {name: column.unpack(f"Paths.{name}", getattr(message, name), rows) for name, column in _PATHS.items()}


def _addresses_in(message: keys_pb2.FlowColumns) -> Sequence[bytes]:
    addresses: list[bytes] = message.addresses[:]
    for size in sorted(set(map(len, addresses)) - _ADDRESS_BYTES):
        raise MessageError(f"an address of {size} bytes is neither IPv4 nor IPv6")
    if len(set(addresses)) != len(addresses):
        raise MessageError("an address appears twice in one message")
    return addresses


def _check_once(ends: Integers, about: Integers) -> None:
    """Raise MessageError where two rows have the same ends and the same protocol and ports."""
    order = np.lexsort((about, ends))
    ends, about = ends[order], about[order]
    if bool(((ends[1:] == ends[:-1]) & (about[1:] == about[:-1])).any()):
        raise MessageError("a flow appears twice in one message")


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
    """Return the known details of jobs, by their numbers, as a message."""
    message = messages.JobNotes()
    for job, note in notes.items():
        put(message.notes.add(job=job), note, _NOTE)
    return message


def notes_of(message: messages.JobNotes) -> dict[int, JobNote]:
    """Return the jobs in a message; raise MessageError if it contains one twice."""
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
