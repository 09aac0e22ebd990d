"""Names in a switch as entries, and back."""

from __future__ import annotations

import pytest
from finsy import P4Schema, P4TableEntry
from finsy.p4entity import decode_entity

from controller.network.p4runtime.session import FABRIC_AGGREGATION, check_schema, fabric_program, load_schema
from controller.network.tables.base import FILL_ORDER
from controller.network.tables.entities import Entity, index
from controller.network.tables.store import (
    CELLS,
    OUTCOME_NAMES,
    OUTCOMES,
    TABLES,
    Copied,
    Recorded,
    StoreTables,
    Writer,
    held_in,
    hot_names_entity,
    mark_entity,
    name_entity,
    route_entity,
    routes_in,
    writer_entity,
)
from dataplane.store.names import Prefix, Segment, prefix_of

COPY = Copied(Segment(2**128 - 1, 2**32 - 1), CELLS - 1, 2**32 - 1, producer=10 << 24 | 5, port=511)
WRITERS = (Writer(10 << 24 | 1), Writer(10 << 24 | 2, port=7))
ROUTES = {Prefix(): 10 << 24 | 1, prefix_of("/a"): 10 << 24 | 2, prefix_of("/a/b"): 10 << 24 | 3}
RECORD = Recorded(Segment(1, 2), 0, 9, group=3, forward=True)


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    return load_schema(*fabric_program(FABRIC_AGGREGATION))


def entities() -> list[Entity]:
    made = [name_entity(COPY), name_entity(RECORD), mark_entity(77), hot_names_entity(5, 16)]
    made += [route_entity(prefix, producer) for prefix, producer in ROUTES.items()]
    return [*made, *(writer_entity(3, writer) for writer in WRITERS)]


def test_the_program_has_a_place_for_every_entry(schema: P4Schema) -> None:
    check_schema(schema, entities())
    tables = {entity.table_id for entity in entities() if isinstance(entity, P4TableEntry)}
    assert tables == TABLES
    assert not TABLES & set(FILL_ORDER)
    assert schema.tables["store_names"].size == CELLS + 1
    assert schema.counters[OUTCOMES].size == len(OUTCOME_NAMES)


def test_store_tables_round_trip_through_entries(schema: P4Schema) -> None:
    held = StoreTables(
        {COPY.segment: COPY, RECORD.segment: RECORD},
        frozenset((3, writer) for writer in WRITERS),
        mark=77,
        interval=5,
        threshold=16,
    )
    assert held_in(index(entities())) == held
    read = [decode_entity(entity.encode(schema), schema) for entity in entities()]
    assert held_in(index(entity for entity in read if isinstance(entity, P4TableEntry))) == held
    assert held_in({}) == StoreTables()


def test_routes_round_trip_through_entries(schema: P4Schema) -> None:
    assert routes_in(index(entities())) == ROUTES
    read = [decode_entity(entity.encode(schema), schema) for entity in entities()]
    assert routes_in(index(entity for entity in read if isinstance(entity, P4TableEntry))) == ROUTES
