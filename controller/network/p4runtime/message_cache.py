"""Entities as bytes of messages and back, each translated once: most of a large fabric's entries are on many switches.

finsy translates an entry in about 30 us. Table entries are encoded alike in every version of P4Runtime, so all sessions
of one program share the translations; groups, members and sessions are few, and translated every time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from finsy import P4Schema, P4TableEntry
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from controller.network.tables.entities import Entity, EntityKey, Update, Verb, key_of

_ROOM: Final = 1 << 18
"""Entries kept, of either direction; all are forgotten when there are more."""

_TYPES: Final = {Verb.INSERT: p4r.Update.INSERT, Verb.MODIFY: p4r.Update.MODIFY, Verb.DELETE: p4r.Update.DELETE}


class MessageCache:
    """Cache of translations between one program's entries and their messages.

    Concatenated messages of one kind are one message that has the fields of all of them.
    """

    def __init__(self, room: int = _ROOM) -> None:
        self._room = room
        # An entity is kept with its bytes, so that its id is of no other one meanwhile.
        self._encoded: dict[tuple[int, Verb], tuple[Entity, bytes]] = {}
        self._decoded: dict[bytes, tuple[EntityKey, Entity]] = {}
        self._program: bytes | None = None

    def encode(self, schema: P4Schema, update: Update) -> bytes:
        """Return an update as a WriteRequest with only that; raises ValueError or KeyError as finsy does."""
        if not isinstance(update.entity, P4TableEntry):
            return _encode(schema, update)
        name = id(update.entity), update.verb
        found = self._encoded.get(name)
        if found is None:
            if len(self._encoded) >= self._room:
                self._encoded.clear()
            found = self._encoded[name] = update.entity, _encode(schema, update)
        return found[1]

    def program(self, schema: P4Schema) -> bytes:
        """Return a SetForwardingPipelineConfigRequest of nothing but the program, which takes megabytes."""
        if self._program is None:
            request = p4r.SetForwardingPipelineConfigRequest(config=schema.get_pipeline_config())
            self._program = request.SerializeToString()
        return self._program

    def decode(self, schema: P4Schema, message: p4r.Entity) -> tuple[EntityKey, Entity]:
        """Return an entity and its key; raises ValueError, KeyError or ControllerError for what is none."""
        if message.WhichOneof("entity") != "table_entry":
            return _decode(schema, message)
        name = message.SerializeToString(deterministic=True)
        found = self._decoded.get(name)
        if found is None:
            if len(self._decoded) >= self._room:
                self._decoded.clear()
            found = self._decoded[name] = _decode(schema, message)
        return found


@lru_cache(maxsize=4)
def cache_of(cookie: int) -> MessageCache:
    """Return what all sessions of the program of this cookie share."""
    del cookie
    return MessageCache()


def _encode(schema: P4Schema, update: Update) -> bytes:
    message = p4r.Update(type=_TYPES[update.verb], entity=update.entity.encode(schema))
    return p4r.WriteRequest(updates=[message]).SerializeToString()


def _decode(schema: P4Schema, message: p4r.Entity) -> tuple[EntityKey, Entity]:
    entity: Entity = decode_entity(message, schema)
    return key_of(entity), entity
