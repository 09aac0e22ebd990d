"""Write and Read: batches of entities, each of which succeeds or fails on its own (sections 12 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

from finsy.proto import p4r

from dataplane.errors import EntryError
from dataplane.switch.p4runtime.bulk.plan import Run
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind
from dataplane.switch.p4runtime.entities import (
    arrays,
    digests,
    direct,
    meters,
    profiles,
    replication,
    tables,
    value_sets,
)
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, from_entry_error, invalid, unimplemented
from dataplane.switch.tables import ForwardingState, Table
from dataplane.switch.tables.rows import Rows

CHUNK_ENTITIES = 256
"""Maximum entities in one ReadResponse."""

CHUNK_BYTES = 1 << 20
"""Size after which a ReadResponse takes no more entities: gRPC clients refuse messages over 4 MiB."""

MOST_RANGES = 16
"""Maximum ranges of failed requests in an error's text."""

SLICE_UPDATES = 256
"""Updates of a batch after which packets get their turn, if the batch need not be seen whole."""

FEWEST_ROWS = 4
"""Consecutive inserts into one table from which rows take less time than one entry after the other."""

Writer = Callable[[Context, UpdateKind, Any], None]
Reader = Callable[[Context, Any], Iterator[p4r.Entity]]
Undoer = Callable[[Context, Any], Undo]


@dataclass(frozen=True, slots=True)
class _Entity:
    """Operations on one kind of entity."""

    write: Writer
    read: Reader
    undo: Undoer


_ENTITIES = {
    "table_entry": _Entity(tables.write, tables.read, tables.undo),
    "direct_counter_entry": _Entity(direct.write_counter, direct.read_counter, direct.undo),
    "direct_meter_entry": _Entity(direct.write_meter, direct.read_meter, direct.undo),
    "action_profile_member": _Entity(profiles.write_member, profiles.read_member, profiles.undo_member),
    "action_profile_group": _Entity(profiles.write_group, profiles.read_group, profiles.undo_group),
    "counter_entry": _Entity(arrays.write_counter, arrays.read_counter, arrays.undo_counter),
    "register_entry": _Entity(arrays.write_register, arrays.read_register, arrays.undo_register),
    "meter_entry": _Entity(meters.write, meters.read, meters.undo),
    "packet_replication_engine_entry": _Entity(replication.write, replication.read, replication.undo),
    "value_set_entry": _Entity(value_sets.write, value_sets.read, value_sets.undo),
    "digest_entry": _Entity(digests.write, digests.read, digests.undo),
}
_UPDATE_KINDS = {kind.value: kind for kind in UpdateKind}


def write(context: Context, request: p4r.WriteRequest) -> None:
    """Apply updates in order, each whole or not at all; raise UNKNOWN with one p4.v1.Error per update if any failed.

    CONTINUE_ON_ERROR attempts every update; with the other modes, nothing has changed if one failed, and
    DATAPLANE_ATOMIC shows packets all updates or none.
    """
    updates, runs = request.updates, _runs(context, request)
    with context.state.lock:
        context.make_room()
    match request.atomicity:
        case p4r.WriteRequest.CONTINUE_ON_ERROR:
            _write_each(context, updates, runs)
        case p4r.WriteRequest.ROLLBACK_ON_ERROR:
            with context.state.lock, _quiet(context, updates, runs):
                _write_all(context, updates, runs)
        case p4r.WriteRequest.DATAPLANE_ATOMIC:
            with context.state.lock, context.control.paused():
                _write_all(context, updates, runs)
        case other:
            raise unimplemented(f"atomicity {other}")


def _runs(context: Context, request: p4r.WriteRequest) -> list[Run]:
    """Return a batch's updates, as rows where enough of them can be."""
    count = len(request.updates)
    if count < FEWEST_ROWS:
        return [Run(0, count, "", None)]
    return context.bulk.runs(request.SerializeToString(), count, FEWEST_ROWS)


def _write_each(context: Context, updates: Sequence[p4r.Update], runs: Sequence[Run]) -> None:
    failures: dict[int, p4r.Error] = {}
    for some in _slices(runs):
        with context.state.lock, _quiet(context, updates, some):
            for run in some:
                for index in _left(context, run):
                    failure = _attempt(context, updates[index])
                    if failure is not None:
                        failures[index] = failure.to_error()
    _raise_failures(failures, len(updates), "write")


def _slices(runs: Iterable[Run]) -> Iterator[list[Run]]:
    """Yield the runs in groups of at most SLICE_UPDATES updates."""
    some: list[Run] = []
    room = SLICE_UPDATES
    for run in runs:
        rest: Run | None = run
        while rest is not None:
            part, rest = rest.split(room)
            some.append(part)
            room -= part.count
            if not room:
                yield some
                some, room = [], SLICE_UPDATES
    if some:
        yield some


def _left(context: Context, run: Run) -> range:
    """Insert a run's rows as far as possible; return the numbers of the updates that are left."""
    done = 0 if run.rows is None else context.state.tables[run.table].insert_rows(run.rows)
    return range(run.start + done, run.start + run.count)


def _quiet(context: Context, updates: Sequence[p4r.Update], runs: Iterable[Run]) -> AbstractContextManager[None]:
    """Hold packets while registers are written: one between its read and its write would overwrite the controller's."""
    others = (updates[index] for run in runs if run.rows is None for index in range(run.start, run.start + run.count))
    if any(update.entity.HasField("register_entry") for update in others):
        return context.control.paused()
    return nullcontext()


def _write_all(context: Context, updates: Sequence[p4r.Update], runs: Iterable[Run]) -> None:
    undone: list[Undo] = []
    for run in runs:
        left = _left(context, run)
        if run.rows is not None:
            undone.append(partial(_remove, context.state.tables[run.table], run.rows.first(left.start - run.start)))
        for index in left:
            failure = _attempt(context, updates[index], undone)
            if failure is None:
                continue
            for undo in reversed(undone):
                undo()
            aborted = P4RuntimeError(Code.ABORTED, f"number {index} in the batch failed").to_error()
            failures = dict.fromkeys(range(len(updates)), aborted) | {index: failure.to_error()}
            _raise_failures(failures, len(updates), "write", index)


def _remove(table: Table, rows: Rows) -> None:
    """Delete the entries of rows, the youngest first."""
    entries = zip(rows.layout.matches(rows.data), rows.layout.priorities(rows.data), strict=True)
    for match, priority in reversed([*entries]):
        table.delete(match, priority)


def _attempt(context: Context, update: p4r.Update, undone: list[Undo] | None = None) -> P4RuntimeError | None:
    """Apply one update and record its undo; return why it failed, or None."""
    try:
        kind, entity, message = _decode_update(update)
        undo = None if undone is None else entity.undo(context, message)
        entity.write(context, kind, message)
    except P4RuntimeError as error:
        return error
    except EntryError as error:
        return from_entry_error(error)
    if undone is not None and undo is not None:
        undone.append(undo)
    return None


def _decode_update(update: p4r.Update) -> tuple[UpdateKind, _Entity, Any]:
    kind = _UPDATE_KINDS.get(update.type)
    if kind is None:
        raise invalid(f"update type {update.type} is not INSERT, MODIFY or DELETE")
    name = update.entity.WhichOneof("entity")
    if name is None:
        raise invalid("the update has no entity")
    entity = _ENTITIES.get(name)
    if entity is None:
        raise _unknown_extern(update.entity)
    return kind, entity, getattr(update.entity, name)


def _unknown_extern(entity: p4r.Entity) -> P4RuntimeError:
    """Return the refusal of an entity of an extern, which no loadable program has."""
    extern = entity.extern_entry
    return unimplemented(f"extern type {extern.extern_type_id:#010x}, instance {extern.extern_id:#010x}")


def read(context: Context, entities: Sequence[p4r.Entity]) -> Iterator[p4r.ReadResponse]:
    """Return the entities that a request selects, in chunks; after the last raise UNKNOWN if some were refused.

    The selection is fixed under the state's lock before this returns; the counts in a chunk are those at the instant
    when it is encoded.
    """
    failures: dict[int, p4r.Error] = {}
    readers: list[Iterator[p4r.Entity]] = []
    with context.state.lock:
        for index, entity in enumerate(entities):
            try:
                readers.append(_read_one(context, entity))
            except P4RuntimeError as error:
                failures[index] = error.to_error()
            except EntryError as error:
                failures[index] = from_entry_error(error).to_error()
    number = len(entities)
    return _stream(context.state, chain.from_iterable(readers), failures, number)


def _stream(
    state: ForwardingState, entities: Iterator[p4r.Entity], failures: Mapping[int, p4r.Error], number: int
) -> Iterator[p4r.ReadResponse]:
    while True:
        with state.lock:
            chunk = _chunk(entities)
        if not chunk:
            break
        yield p4r.ReadResponse(entities=chunk)
    _raise_failures(failures, number, "read")


def _chunk(entities: Iterator[p4r.Entity]) -> list[p4r.Entity]:
    """Return the next entities, as many as fit into one response; none after the last."""
    chunk: list[p4r.Entity] = []
    size = 0
    for entity in islice(entities, CHUNK_ENTITIES):
        chunk.append(entity)
        size += entity.ByteSize()
        if size >= CHUNK_BYTES:
            break
    return chunk


def _read_one(context: Context, entity: p4r.Entity) -> Iterator[p4r.Entity]:
    name = entity.WhichOneof("entity")
    if name is None:
        raise invalid("the request has an empty entity")
    kind = _ENTITIES.get(name)
    if kind is not None:
        return kind.read(context, getattr(entity, name))
    if entity.extern_entry.ByteSize():
        raise _unknown_extern(entity)
    return iter(())


def _raise_failures(failures: Mapping[int, p4r.Error], number: int, what: str, first: int | None = None) -> None:
    """Raise UNKNOWN if there are failures, with an error for each of `number` requests; the text is the first's."""
    if not failures:
        return
    first = min(failures) if first is None else first
    details = [failures.get(index) or p4r.Error() for index in range(number)]
    problem = f"{len(failures)} of {number} {what} requests failed ({_ranges(failures)}); the first, number {first}"
    raise P4RuntimeError(Code.UNKNOWN, f"{problem}: {failures[first].message}", details)


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text, consecutive ones as a range, omitting those after the first `MOST_RANGES`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:MOST_RANGES]]
    return ", ".join([*texts, "..."] if len(ranges) > MOST_RANGES else texts)
