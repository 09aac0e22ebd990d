"""Interface of a session to one switch, and the messages that both kinds of session exchange with it.

`Session` is the synchronous kind (in one process, virtual time); `AsyncSession` the same over gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol, TypeAlias, runtime_checkable

from finsy import (
    P4ActionProfileGroup,
    P4ActionProfileMember,
    P4CloneSessionEntry,
    P4CounterEntry,
    P4DigestEntry,
    P4DirectCounterEntry,
    P4MulticastGroupEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
)
from finsy.p4entity import P4DigestList, decode_entity
from finsy.proto import p4r
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError

import dataplane
from controller.common.errors import ControllerError, SessionError
from controller.network.tables.entities import Batch, Entity, EntityKey, Update, Verb, key_of, same
from dataplane.given import read_given

# Entities as bytes of messages and back, each translated once: most of a large fabric's entries are on many switches.
#
# finsy translates an entry in about 30 us. Table entries are encoded alike in every version of P4Runtime, so all
# sessions of one program share the translations; groups, members and sessions are few, and translated every time.


_ROOM: Final = 1 << 18
"""Entries kept per direction; beyond that all are dropped."""

_TYPES: Final = {Verb.INSERT: p4r.Update.INSERT, Verb.MODIFY: p4r.Update.MODIFY, Verb.DELETE: p4r.Update.DELETE}


class MessageCache:
    """Cache of translations between one program's entries and their messages.

    Concatenated messages of one kind are one message that has the fields of all of them.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        # An entity is kept with its bytes, so that its id is not reused meanwhile.
        self._encoded: dict[tuple[int, Verb], tuple[Entity, bytes]] = {}
        self._decoded: dict[bytes, tuple[EntityKey, Entity]] = {}
        self._program: bytes | None = None

    def encode(self, schema: P4Schema, update: Update) -> bytes:
        """Return an update as a WriteRequest with only that; raises ValueError or KeyError as finsy does."""
        if not isinstance(update.entity, P4TableEntry):
            return _encode(schema, update)
        name = id(update.entity), update.verb
        cached = self._encoded.get(name)
        if cached is None:
            if len(self._encoded) >= self._room:
                self._encoded.clear()
            cached = self._encoded[name] = update.entity, _encode(schema, update)
        return cached[1]

    def program(self, schema: P4Schema) -> bytes:
        """Return a SetForwardingPipelineConfigRequest with only the program, which takes megabytes."""
        if self._program is None:
            request = p4r.SetForwardingPipelineConfigRequest(config=schema.get_pipeline_config())
            self._program = request.SerializeToString()
        return self._program

    def decode(self, schema: P4Schema, message: p4r.Entity) -> tuple[EntityKey, Entity]:
        """Return an entity and its key; raises ValueError, KeyError or ControllerError if it is invalid."""
        if message.WhichOneof("entity") != "table_entry":
            return _decode(schema, message)
        name = message.SerializeToString(deterministic=True)
        cached = self._decoded.get(name)
        if cached is None:
            if len(self._decoded) >= self._room:
                self._decoded.clear()
            cached = self._decoded[name] = _decode(schema, message)
        return cached


@lru_cache(maxsize=4)
def cache_of(cookie: int) -> MessageCache:
    """Return the cache that all sessions of the program with this cookie share."""
    del cookie
    return MessageCache()


def _encode(schema: P4Schema, update: Update) -> bytes:
    message = p4r.Update(type=_TYPES[update.verb], entity=update.entity.encode(schema))
    return p4r.WriteRequest(updates=[message]).SerializeToString()


def _decode(schema: P4Schema, message: p4r.Entity) -> tuple[EntityKey, Entity]:
    entity: Entity = decode_entity(message, schema)
    return key_of(entity), entity


ELECTION_ID = 10
"""Default election id of a controller."""

FABRIC = "fabric"
FABRIC_AGGREGATION = "fabric_aggregation"
"""The bundled programs: the fabric's, and the one with aggregation."""

_INSTALLED = Path(dataplane.__file__).parent / "program" / "build"
_SOURCE = Path(dataplane.__file__).parents[1] / "p4" / "build"

_PROGRAMS_OWN = "NoAction"
"""Action that a table reads back with while its default action is the program's own."""


class Session(Protocol):
    """A P4Runtime session to one switch, as its primary controller; every failure is a SessionError."""

    @property
    def switch(self) -> str:
        """The switch's name."""
        ...

    def install_pipeline(self) -> bool:
        """Make the switch run the session's program; return whether it had to be sent (and tables are now empty)."""
        ...

    def read(self) -> dict[EntityKey, Entity]:
        """Return all entities of the switch that the controller may write."""
        ...

    def write(self, batch: Batch) -> None:
        """Execute updates in any order; raise SessionError that names those that were refused."""
        ...


class AsyncSession(Protocol):
    """A `Session` with asynchronous methods."""

    @property
    def switch(self) -> str:
        """The switch's name."""
        ...

    async def read(self) -> dict[EntityKey, Entity]:
        """Return all entities of the switch that the controller may write."""
        ...

    async def write(self, batch: Batch) -> None:
        """Execute updates in any order; raise SessionError that names those that were refused."""
        ...


@dataclass(frozen=True, slots=True)
class Bundling:
    """Bundling of a digest's messages by a switch: the maximum number, and the maximum wait."""

    messages: int
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Learned:
    """A list of a digest's messages, by field."""

    digest: str
    list_id: int
    messages: tuple[Mapping[str, int], ...]


OnLearned: TypeAlias = Callable[[Learned], None]
"""Handler of a switch's digests; a digest is acknowledged as soon as it returns."""


@runtime_checkable
class LearningSession(AsyncSession, Protocol):
    """An `AsyncSession` that also reports a switch's counters and digests."""

    async def packets(self, counter: str) -> dict[EntityKey, int]:
        """Return the packets of each entry of a direct counter's table."""
        ...

    async def learn(self, digest: str, bundling: Bundling, on_learned: OnLearned) -> None:
        """Pass a program's digests to `on_learned`, in place of the previous handler."""
        ...


def fabric_program(name: str = FABRIC) -> tuple[Path, Path]:
    """Return P4Info and bmv2 JSON of a bundled program: the wheel's, else the checkout's."""
    folder = _INSTALLED if _INSTALLED.is_dir() else _SOURCE
    return folder / f"{name}.p4info.txtpb", folder / f"{name}.json"


def load_schema(p4info: Path, program: Path) -> P4Schema:
    """Return a compiled program in finsy's form; raise ControllerError naming the invalid file."""
    for file in (p4info, program):
        if not file.is_file():
            raise ControllerError(f"{file}: there is no such file; the P4 build is incomplete")
    try:
        schema = _parsed(p4info, read_given(p4info), read_given(program))
    except (text_format.ParseError, json_format.ParseError, DecodeError, ValueError, OSError) as error:
        raise ControllerError(f"{p4info}: {_first_line(error)}") from error
    if not len(schema.tables):
        raise ControllerError(f"{p4info}: describes no tables")
    return schema


@lru_cache(maxsize=4)
def _parsed(p4info: Path, _text: bytes, program: bytes) -> P4Schema:
    """Return the schema of two files, cached: controllers of virtual fabrics in one process share it."""
    return P4Schema(p4info, program)


def check_schema(schema: P4Schema, entities: Iterable[Entity]) -> None:
    """Raise ControllerError naming the first entity that the program does not support."""
    for entity in entities:
        try:
            entity.encode(schema)
        except (ValueError, KeyError) as error:
            raise ControllerError(f"program {schema.name or 'without a name'}: {_first_line(error)}") from error


def write_request(schema: P4Schema, switch: str, device_id: int, batch: Batch) -> p4r.WriteRequest:
    """Return a batch as a WriteRequest without election id; raise SessionError if the program lacks part of it."""
    request = p4r.WriteRequest.FromString(encoded_updates(schema, switch, batch))
    request.device_id = device_id
    return request


def encoded_updates(schema: P4Schema, switch: str, batch: Batch) -> bytes:
    """Return the bytes of a WriteRequest with only a batch; raise SessionError if the program lacks part of it.

    Joined encodings of a repeated field are a valid message, so no update is encoded twice.
    """
    cache, parts = cache_of(schema.p4cookie), []
    for update in batch:
        try:
            parts.append(cache.encode(schema, update))
        except (ValueError, KeyError) as error:
            raise SessionError(switch, f"encode {update}", _first_line(error)) from error
    return b"".join(parts)


def read_request(schema: P4Schema, device_id: int) -> p4r.ReadRequest:
    """Return the request for everything that the controller may write.

    A wildcard does not select default actions (section 11.1), so those that may change are requested one by one.
    """
    wanted: list[Entity] = [
        P4TableEntry(),
        P4ActionProfileMember(),
        P4ActionProfileGroup(),
        P4MulticastGroupEntry(),
        P4CloneSessionEntry(),
    ]
    wanted.extend(
        P4TableEntry(table.alias, is_default_action=True)
        for table in schema.tables
        if table.const_default_action is None and table.action_profile is None
    )
    return p4r.ReadRequest(device_id=device_id, entities=[entity.encode(schema) for entity in wanted])


def read_answer(schema: P4Schema, switch: str, answers: Iterable[p4r.ReadResponse]) -> dict[EntityKey, Entity]:
    """Return a switch's answer by key, without unwritable or unwritten entities; raise SessionError if invalid."""
    cache, entities = cache_of(schema.p4cookie), dict[EntityKey, Entity]()
    try:
        for answer in answers:
            for message in answer.entities:
                key, entity = cache.decode(schema, message)
                if not _is_ours(entity):
                    continue
                if not same(entities.setdefault(key, entity), entity):
                    raise ControllerError(f"{key}: present twice with different content")
    except (ValueError, KeyError, ControllerError) as error:
        raise SessionError(switch, "read", f"cannot decode the answer: {_first_line(error)}") from error
    return entities


def packets_request(schema: P4Schema, device_id: int, counter: str) -> p4r.ReadRequest:
    """Return the request for all of a direct counter."""
    return p4r.ReadRequest(device_id=device_id, entities=[P4DirectCounterEntry(counter).encode(schema)])


def packets_answer(schema: P4Schema, switch: str, answers: Iterable[p4r.ReadResponse]) -> dict[EntityKey, int]:
    """Return the packets of each entry; raise SessionError if the answer is unreadable."""
    packets: dict[EntityKey, int] = {}
    try:
        for answer in answers:
            for message in answer.entities:
                entry = decode_entity(message, schema)
                if isinstance(entry, P4DirectCounterEntry) and entry.table_entry is not None:
                    packets[key_of(entry.table_entry)] = entry.packet_count
    except (ValueError, KeyError, ControllerError) as error:
        raise SessionError(switch, "read", f"cannot decode the answer: {_first_line(error)}") from error
    return packets


def counts_request(schema: P4Schema, device_id: int, counter: str) -> p4r.ReadRequest:
    """Return the request for all of a counter."""
    return p4r.ReadRequest(device_id=device_id, entities=[P4CounterEntry(counter).encode(schema)])


def counts_answer(schema: P4Schema, switch: str, answers: Iterable[p4r.ReadResponse]) -> list[int]:
    """Return the packets of each index, in order; raise SessionError if the answer is unreadable."""
    try:
        entries = [decode_entity(message, schema) for answer in answers for message in answer.entities]
    except (ValueError, KeyError) as error:
        raise SessionError(switch, "read", f"cannot decode the answer: {_first_line(error)}") from error
    counts = {entry.index or 0: entry.packet_count for entry in entries if isinstance(entry, P4CounterEntry)}
    return [counts[index] for index in sorted(counts)]


def learn_request(
    schema: P4Schema, device_id: int, digest: str, bundling: Bundling, *, is_known: bool
) -> p4r.WriteRequest:
    """Return the request, without election id, to get a digest; `is_known` if the switch sends it already."""
    entry = P4DigestEntry(digest, max_list_size=bundling.messages, max_timeout_ns=bundling.wait_ns)
    kind = p4r.Update.MODIFY if is_known else p4r.Update.INSERT
    return p4r.WriteRequest(device_id=device_id, updates=[p4r.Update(type=kind, entity=entry.encode(schema))])


def digests_request(schema: P4Schema, device_id: int, digest: str) -> p4r.ReadRequest:
    """Return the request for a digest's configuration."""
    return p4r.ReadRequest(device_id=device_id, entities=[P4DigestEntry(digest).encode(schema)])


def learned(schema: P4Schema, message: p4r.StreamMessageResponse) -> tuple[Learned, p4r.StreamMessageRequest]:
    """Return the learned messages, and their acknowledgement; raises ValueError or KeyError if unreadable."""
    digest = P4DigestList.decode(message, schema)
    messages = tuple(message_data for message_data in digest.data if isinstance(message_data, dict))
    return Learned(digest.digest_id, digest.list_id, messages), digest.ack().encode_update(schema)


def refusals(batch: Batch, details: Sequence[p4r.Error]) -> tuple[tuple[int, ...], str]:
    """Return the positions of refused updates and one line about the first; details come one an update, in order."""
    failed = tuple(index for index, detail in enumerate(details) if detail.canonical_code and index < len(batch))
    if not failed:
        return (), ""
    first: Update = batch[failed[0]]
    return failed, f"{first}: {details[failed[0]].message} ({len(failed)} of {len(batch)} updates refused)"


def _is_ours(entity: Entity) -> bool:
    if not isinstance(entity, P4TableEntry):
        return True
    untouched = entity.action is None or (
        isinstance(entity.action, P4TableAction) and entity.action.name == _PROGRAMS_OWN
    )
    return not entity.is_const and not (entity.is_default_action and untouched)


def _first_line(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.splitlines()[0]
