"""What a P4Info may declare beside the bmv2 JSON: translated types, externs, platform properties."""

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
def test_types_translated_to_strings_are_refused_by_name(p4info: p4i.P4Info, place: Callable[..., Any]) -> None:
    place(p4info).bitwidth, place(p4info).type_name.name = 0, "name_t"
    with pytest.raises(ProgramError, match="translated to"):
        catalog(p4info)


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
        (demand_groups, "65536 groups are demanded"),
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
