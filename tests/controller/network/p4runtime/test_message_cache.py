"""Entries are translated once, like finsy does."""

from __future__ import annotations

import pytest
from finsy import P4Schema
from finsy.p4entity import decode_entity
from finsy.proto import p4r

from controller.network.p4runtime.session import MessageCache, fabric_program, load_schema
from controller.network.tables.entities import Entities, EntityKey, Kind, Update, Verb, key_of
from dataplane.topology.families import leaf_spine
from tests.controller.network.base_tables import base_entities


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    """Return the fabric's program."""
    return load_schema(*fabric_program())


@pytest.fixture(scope="module")
def entities() -> Entities:
    """Return the entries of a leaf."""
    return base_entities(leaf_spine(2, 2, 2))["leaf1"]


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_cache_encodes_as_finsy_does(schema: P4Schema, entities: Entities, room: int) -> None:
    cache = MessageCache(room)
    for _ in range(2):
        for verb, kind in ((Verb.INSERT, p4r.Update.INSERT), (Verb.DELETE, p4r.Update.DELETE)):
            updates = [Update(verb, key, entity) for key, entity in entities.items()]
            request = p4r.WriteRequest.FromString(b"".join(cache.encode(schema, update) for update in updates))
            plain = [p4r.Update(type=kind, entity=entity.encode(schema)) for entity in entities.values()]
            assert list(request.updates) == plain


@pytest.mark.parametrize("room", [1, 3, 1000])
def test_cache_decodes_as_finsy_does(schema: P4Schema, entities: Entities, room: int) -> None:
    cache = MessageCache(room)
    for _ in range(2):
        for entity in entities.values():
            message = entity.encode(schema)
            plain = decode_entity(message, schema)
            assert cache.decode(schema, message) == (key_of(plain), plain)


def test_cache_returns_the_same_entry_for_the_same_message(schema: P4Schema, entities: Entities) -> None:
    cache = MessageCache()
    entity = next(entity for key, entity in entities.items() if key.table == "ipv4_routes")
    (key, first), (again, second) = (cache.decode(schema, entity.encode(schema)) for _ in range(2))
    assert first is second
    assert key is again
    assert key == EntityKey(Kind.ENTRY, "ipv4_routes", key.match)


def test_cache_has_the_program_as_finsy_sends_it(schema: P4Schema) -> None:
    head = p4r.SetForwardingPipelineConfigRequest(device_id=7, election_id=p4r.Uint128(low=3))
    request = p4r.SetForwardingPipelineConfigRequest.FromString(
        head.SerializeToString() + MessageCache().program(schema)
    )
    assert (request.device_id, request.election_id.low) == (7, 3)
    assert request.config == schema.get_pipeline_config()
