"""Declarations of a P4Info in addition to the bmv2 JSON: translated types, externs, platform properties."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i, p4r, p4t

from dataplane.errors import ProgramError
from dataplane.program.loader import load_program
from dataplane.switch.p4runtime.catalog import Catalog

PROGRAMS = Path(__file__).parents[2] / "programs"
Change = Callable[[p4i.P4Info], None]


@pytest.fixture
def p4info(config: p4r.ForwardingPipelineConfig) -> p4i.P4Info:
    copy = p4i.P4Info()
    copy.CopyFrom(config.p4info)
    new_types = copy.type_info.new_types
    new_types["wide_t"].translated_type.CopyFrom(p4t.P4NewTypeTranslation(uri="u", sdn_bitwidth=32))
    new_types["name_t"].translated_type.uri = "u"
    new_types["name_t"].translated_type.sdn_string.SetInParent()
    new_types["own_t"].original_type.bitstring.bit.bitwidth = 9
    return copy


def catalog(p4info: p4i.P4Info) -> Catalog:
    return Catalog(load_program(PROGRAMS / "p4rt_entities.json", p4info.SerializeToString()))


def exact_field(p4info: p4i.P4Info) -> Any:
    return next(table for table in p4info.tables if table.preamble.alias == "exact_table").match_fields[1]


def parameter(p4info: p4i.P4Info) -> Any:
    return next(action for action in p4info.actions if action.preamble.alias == "forward").params[0]


def metadata(p4info: p4i.P4Info) -> Any:
    return p4info.controller_packet_metadata[0].metadata[0]


PLACES = pytest.mark.parametrize("place", [exact_field, parameter, metadata])


@PLACES
def test_numbers_of_translated_types_are_the_data_planes(p4info: p4i.P4Info, place: Callable[..., Any]) -> None:
    place(p4info).bitwidth, place(p4info).type_name.name = 32, "wide_t"
    made = catalog(p4info)
    assert made.tables_by_name["EntitiesIngress.exact_table"].key.fields[1].width == 9
    assert [width for _, width in made.program.actions["EntitiesIngress.forward"].parameters] == [9]
    assert made.packet_in.length_bytes == made.packet_out.length_bytes == 2


@PLACES
def test_string_translated_types_have_the_data_planes_width(p4info: p4i.P4Info, place: Callable[..., Any]) -> None:
    place(p4info).bitwidth, place(p4info).type_name.name = 0, "name_t"
    (strings,) = catalog(p4info).strings
    assert (strings.name, strings.width) == ("name_t", 9)


def test_types_of_ones_own_are_not_translated(p4info: p4i.P4Info) -> None:
    exact_field(p4info).type_name.name = "own_t"
    assert catalog(p4info).tables_by_name["EntitiesIngress.exact_table"].key.fields[1].width == 9


def rename_metadata(info: p4i.P4Info) -> None:
    field = metadata(info)
    field.bitwidth, field.type_name.name, field.name = 32, "wide_t", "renamed"


def demand_groups(info: p4i.P4Info) -> None:
    info.pkg_info.platform_properties.multicast_group_table_size = 1 << 16


def add_extern(info: p4i.P4Info) -> None:
    info.externs.add(extern_type_name="Teleporter", extern_type_id=0x81)


def rename_digest_type(info: p4i.P4Info) -> None:
    info.digests[0].type_spec.struct.name = "unknown_t"


def widen_digest(info: p4i.P4Info) -> None:
    info.type_info.structs["learned_t"].members[0].type_spec.bitstring.bit.bitwidth = 50


def disallow_weights(info: p4i.P4Info) -> None:
    info.action_profiles[0].weights_disallowed = True


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (rename_metadata, "packet_.*: no header has its fields"),
        (demand_groups, "65536 groups are required"),
        (add_extern, "Teleporter"),
        (rename_digest_type, "learned_t: .*unknown_t"),
        (widen_digest, "learned_t: .*different fields"),
        (disallow_weights, "weights_disallowed"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(p4info: p4i.P4Info, change: Change, problem: str) -> None:
    change(p4info)
    with pytest.raises(ProgramError, match=problem):
        catalog(p4info)


def test_a_p4info_that_demands_little_is_served(p4info: p4i.P4Info) -> None:
    p4info.pkg_info.platform_properties.multicast_group_table_size = 0xFFFF
    assert catalog(p4info).digests_by_name


def of(objects: Any, alias: str) -> Any:
    return next(item for item in objects if item.preamble.alias == alias)


def lose_id(info: p4i.P4Info) -> None:
    info.counters[0].preamble.id = 0


def share_an_id(info: p4i.P4Info) -> None:
    info.registers[0].preamble.id = info.counters[0].preamble.id


def share_a_name(info: p4i.P4Info) -> None:
    info.actions[0].preamble.name = info.actions[1].preamble.name


def share_a_field_id(info: p4i.P4Info) -> None:
    of(info.tables, "exact_table").match_fields[0].id = 2


def lose_a_parameter_id(info: p4i.P4Info) -> None:
    parameter(info).id = 0


def implement_by_nothing(info: p4i.P4Info) -> None:
    of(info.tables, "exact_table").implementation_id = 77


def implement_nothing(info: p4i.P4Info) -> None:
    info.action_profiles[0].table_ids.append(77)


def count_by_nothing(info: p4i.P4Info) -> None:
    of(info.tables, "exact_table").direct_resource_ids.append(77)


def count_nothing(info: p4i.P4Info) -> None:
    info.direct_counters[0].direct_table_id = of(info.tables, "lpm_table").preamble.id


def outgrow(info: p4i.P4Info) -> None:
    of(info.action_profiles, "ecmp").max_group_size = 1000


def shrink(info: p4i.P4Info) -> None:
    of(info.tables, "exact_table").size = -1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lose_id, "port_counter: its id is 0"),
        (share_an_id, "its id 0x.* is also that of"),
        (share_a_name, "is declared twice"),
        (share_a_field_id, "exact_table: has a match field with id 2 twice"),
        (lose_a_parameter_id, "forward: has a parameter with id 0"),
        (implement_by_nothing, "no action profile 0x0000004d is its implementation"),
        (implement_nothing, "no table 0x0000004d has it as its implementation"),
        (count_by_nothing, "no direct counter or meter has the id 0x0000004d"),
        (count_nothing, "hits: no table 0x.* has it"),
        (outgrow, r"max_group_size 1000 is not in 0\.\.16, its size"),
        (shrink, "exact_table: its size is -1"),
    ],
)
def test_a_p4info_that_contradicts_itself_is_refused(p4info: p4i.P4Info, change: Change, problem: str) -> None:
    change(p4info)
    with pytest.raises(ProgramError, match=problem):
        catalog(p4info)
