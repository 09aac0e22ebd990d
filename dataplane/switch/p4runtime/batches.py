"""Write and Read: batches of entities, each of which succeeds or fails on its own (sections 12 and 13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from finsy.proto import p4r

from dataplane.errors import EntryError
from dataplane.switch.p4runtime.context import Context, UpdateKind
from dataplane.switch.p4runtime.entities import arrays, profiles, replication, tables
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, from_entry_error, invalid, unimplemented
from dataplane.switch.tables import ForwardingState

CHUNK_ENTITIES = 256
"""Entities that one ReadResponse holds at most."""

Writer = Callable[[Context, UpdateKind, Any], None]
Reader = Callable[[Context, Any], Iterator[p4r.Entity]]

_WRITERS: dict[str, Writer] = {
    "table_entry": tables.write,
    "direct_counter_entry": tables.write_counter,
    "action_profile_member": profiles.write_member,
    "action_profile_group": profiles.write_group,
    "counter_entry": arrays.write_counter,
    "register_entry": arrays.write_register,
    "packet_replication_engine_entry": replication.write,
}
_READERS: dict[str, Reader] = {
    "table_entry": tables.read,
    "direct_counter_entry": tables.read_counter,
    "action_profile_member": profiles.read_member,
    "action_profile_group": profiles.read_group,
    "counter_entry": arrays.read_counter,
    "register_entry": arrays.read_register,
    "packet_replication_engine_entry": replication.read,
}


def write(context: Context, updates: Iterable[p4r.Update]) -> None:
    """Apply updates in order, each whole or not at all; raise UNKNOWN with one p4.v1.Error an update if any failed."""
    errors: list[p4r.Error] = []
    with context.state.lock:
        for update in updates:
            try:
                _write_one(context, update)
                errors.append(p4r.Error())
            except P4RuntimeError as error:
                errors.append(error.to_error())
            except EntryError as error:
                errors.append(from_entry_error(error).to_error())
    _raise_failures(errors, "write")


def _write_one(context: Context, update: p4r.Update) -> None:
    try:
        kind = UpdateKind(update.type)
    except ValueError:
        raise invalid(f"update type {update.type} is not INSERT, MODIFY or DELETE") from None
    name = update.entity.WhichOneof("entity")
    if name is None:
        raise invalid("the update has no entity")
    writer = _WRITERS.get(name)
    if writer is None:
        raise unimplemented(name)
    writer(context, kind, getattr(update.entity, name))


def read(context: Context, entities: Iterable[p4r.Entity]) -> Iterator[p4r.ReadResponse]:
    """Return what the entities of a request select, in chunks; after the last raise UNKNOWN if some were refused.

    What is selected is settled under the state's lock before this returns; the counts of a chunk are those of one
    instant, when it is encoded.
    """
    errors: list[p4r.Error] = []
    found: list[Iterator[p4r.Entity]] = []
    with context.state.lock:
        for entity in entities:
            try:
                found.append(_read_one(context, entity))
                errors.append(p4r.Error())
            except P4RuntimeError as error:
                errors.append(error.to_error())
    return _stream(context.state, chain.from_iterable(found), errors)


def _stream(
    state: ForwardingState, entities: Iterator[p4r.Entity], errors: list[p4r.Error]
) -> Iterator[p4r.ReadResponse]:
    while True:
        with state.lock:
            chunk = list(islice(entities, CHUNK_ENTITIES))
        if not chunk:
            break
        yield p4r.ReadResponse(entities=chunk)
    _raise_failures(errors, "read")


def _read_one(context: Context, entity: p4r.Entity) -> Iterator[p4r.Entity]:
    name = entity.WhichOneof("entity")
    if name is None:
        raise invalid("the request has an empty entity")
    reader = _READERS.get(name)  # of the other kinds no program that loads has any: all of them are none
    if reader is not None:
        return reader(context, getattr(entity, name))
    if getattr(entity, name).ByteSize():
        raise P4RuntimeError(Code.NOT_FOUND, f"the program has no such {name}")
    return iter(())


def _raise_failures(errors: list[p4r.Error], what: str) -> None:
    failed = [index for index, error in enumerate(errors) if error.canonical_code]
    if failed:
        first = errors[failed[0]].message
        message = f"{len(failed)} of {len(errors)} {what} requests failed; the first, number {failed[0]}: {first}"
        raise P4RuntimeError(Code.UNKNOWN, message, errors)
