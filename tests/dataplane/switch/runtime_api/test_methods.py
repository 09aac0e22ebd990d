"""Effects of each call on the tables, and its refusals: the codes are bmv2's."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

import pytest
from thrift.Thrift import TApplicationException

from dataplane.switch.runtime_api.records import (
    AddOptions,
    CounterValue,
    EntryType,
    MeterRate,
    MirroringConfig,
    MulticastCode,
    RangeParam,
    TableCode,
)
from dataplane.switch.runtime_api.records import MatchParam as Param
from dataplane.switch.runtime_api.records import MatchType as Kind
from dataplane.switch.tables import MeterConfig, Replica, TableEntry
from dataplane.switch.tables.match import all_ones
from tests.dataplane.switch.runtime_api.conftest import DEVICE, PROGRAMS, exact, lpm, ternary

if TYPE_CHECKING:
    from dataplane.switch.switch import Switch
    from dataplane.switch.tables import ForwardingState
    from tests.dataplane.switch.runtime_api.conftest import Client

MAC, PORT = b"\x0a\x00\x00\x00\x00\x01", b"\x00\x01"
EXACT, LPM = "EntitiesIngress.exact_table", "EntitiesIngress.lpm_table"
MIXED, AGING = "EntitiesIngress.mixed_table", "EntitiesIngress.aging_table"
SELECTOR, PROFILE = "EntitiesIngress.selector_table", "EntitiesIngress.profile_table"
FORWARD, DROP = "EntitiesIngress.forward", "EntitiesIngress.drop"
ECMP, HOPS = "EntitiesIngress.ecmp", "EntitiesIngress.next_hops"
NONE = AddOptions()


def state(switch: Switch) -> ForwardingState:
    assert switch.state is not None
    return switch.state


def add(client: Client, port: bytes, to: bytes = b"\x02") -> int:
    return int(client.bm_mt_add_entry(0, EXACT, [exact(MAC), exact(port)], FORWARD, [to], NONE))


def test_entries_by_handle(client: Client, switch: Switch) -> None:
    assert [add(client, b"\x00"), add(client, b"\x01"), add(client, b"\x02")] == [0, 1, 2]
    assert client.refusal("bm_mt_add_entry", 0, EXACT, [exact(MAC), exact(PORT)], FORWARD, [b"\x01"], NONE) == (
        TableCode.DUPLICATE_ENTRY
    )
    client.bm_mt_modify_entry(0, EXACT, 1, FORWARD, [b"\x01\x00"])
    stored = state(switch).tables[EXACT].get((0x0A0000000001, 1))
    assert stored is not None
    assert stored.call is not None
    assert stored.call.arguments == (256,)
    client.bm_mt_delete_entry(0, EXACT, 1)
    assert client.refusal("bm_mt_delete_entry", 0, EXACT, 1) == TableCode.INVALID_HANDLE
    assert add(client, b"\x03") == 1  # the smallest that is free
    entry = client.bm_mt_get_entry(0, EXACT, 1)
    assert entry.match_key == [exact(MAC), exact(b"\x00\x03")]
    assert (entry.entry_handle, entry.options.priority, entry.life) == (1, -1, None)
    assert (entry.action_entry.action_name, entry.action_entry.action_data) == (FORWARD, [b"\x00\x02"])
    assert client.bm_mt_get_entry_from_key(0, EXACT, entry.match_key, NONE) == entry
    client.bm_mt_clear_entries(0, EXACT, True)
    assert client.bm_mt_get_num_entries(0, EXACT) == 0


def test_entries_that_others_write_have_handles_too(client: Client, switch: Switch) -> None:
    add(client, b"\x00")
    (own,) = state(switch).tables[EXACT]
    table = state(switch).tables[EXACT]
    table.insert(TableEntry((7, 7), call=own.call))
    assert [entry.entry_handle for entry in client.bm_mt_get_entries(0, EXACT)] == [0, 1]
    table.delete(own.match)
    assert [entry.entry_handle for entry in client.bm_mt_get_entries(0, EXACT)] == [1]
    assert client.refusal("bm_mt_modify_entry", 0, EXACT, 0, DROP, []) == TableCode.INVALID_HANDLE


def test_the_smallest_priority_wins(client: Client, switch: Switch) -> None:
    def mixed(priority: int, to: bytes) -> int:
        key = [ternary(MAC, b"\xff" * 6), Param(Kind.RANGE, range=RangeParam(b"\x01", b"\x07"))]
        key += [ternary(b"\x00", b"\x00"), lpm(b"\x0a\x01\x00\x00\x00\x00", 8), exact(b"\x00")]
        return int(client.bm_mt_add_entry(0, MIXED, key, FORWARD, [to], AddOptions(priority)))

    assert [mixed(10, b"\x01"), mixed(0, b"\x02")] == [0, 1]
    hit = state(switch).tables[MIXED].lookup((0x0A0000000001, 5, 3, 0x0A0000000002, 0))
    assert hit is not None
    assert hit.call is not None
    assert hit.call.arguments == (2,)
    read = client.bm_mt_get_entries(0, MIXED)
    assert [entry.options.priority for entry in read] == [10, 0]
    assert read[0].match_key[2] == ternary(b"\x00\x00", b"\x00\x00")
    assert read[0].match_key[3] == lpm(b"\x0a\x00\x00\x00\x00\x00", 8)  # bits outside the mask are cleared


@pytest.mark.parametrize(
    ("table", "key", "action", "data", "code"),
    [
        ("gone", [], FORWARD, [b"\x01"], TableCode.INVALID_TABLE_NAME),
        (EXACT, [exact(MAC)], FORWARD, [b"\x01"], TableCode.BAD_MATCH_KEY),
        (EXACT, [exact(MAC), ternary(PORT, PORT)], FORWARD, [b"\x01"], TableCode.BAD_MATCH_KEY),
        (EXACT, [exact(MAC), exact(b"\x02\x00")], FORWARD, [b"\x01"], TableCode.BAD_MATCH_KEY),
        (EXACT, [exact(MAC), exact(PORT)], "gone", [b"\x01"], TableCode.INVALID_ACTION_NAME),
        (EXACT, [exact(MAC), exact(PORT)], FORWARD, [], TableCode.BAD_ACTION_DATA),
        (EXACT, [exact(MAC), exact(PORT)], FORWARD, [b"\x02\x00"], TableCode.BAD_ACTION_DATA),
        (LPM, [exact(MAC), lpm(MAC, 49)], FORWARD, [b"\x01"], TableCode.BAD_MATCH_KEY),
        (SELECTOR, [lpm(MAC, 48)], FORWARD, [b"\x01"], TableCode.WRONG_TABLE_TYPE),
        ("EntitiesIngress.keyless", [], FORWARD, [b"\x01"], TableCode.NO_TABLE_KEY),
        ("EntitiesIngress.const_table", [ternary(PORT, PORT)], "NoAction", [], TableCode.IMMUTABLE_TABLE_ENTRIES),
    ],
)
def test_refused_entries(
    client: Client, table: str, key: list[Param], action: str, data: list[bytes], code: TableCode
) -> None:
    assert client.refusal("bm_mt_add_entry", 0, table, key, action, data, NONE) == code


def test_default_entries(client: Client) -> None:
    client.bm_mt_set_default_action(0, "EntitiesIngress.keyless", FORWARD, [b"\x03"])
    entry = client.bm_mt_get_default_entry(0, "EntitiesIngress.keyless")
    assert (entry.action_type, entry.action_name, entry.action_data) == (EntryType.ACTION_DATA, FORWARD, [b"\x00\x03"])
    client.bm_mt_reset_default_entry(0, "EntitiesIngress.keyless")
    assert client.bm_mt_get_default_entry(0, "EntitiesIngress.keyless").action_name == DROP
    assert client.refusal("bm_mt_set_default_action", 0, LPM, DROP, []) == TableCode.DEFAULT_ACTION_IS_CONST


def test_direct_counters_meters_and_lives(client: Client, switch: Switch) -> None:
    handle = add(client, PORT)
    (entry,) = state(switch).tables[EXACT]
    entry.count(100)
    assert client.bm_mt_read_counter(0, EXACT, handle) == CounterValue(100, 1)
    client.bm_mt_write_counter(0, EXACT, handle, CounterValue(7, 8))
    assert (entry.packets, entry.bytes) == (8, 7)
    client.bm_mt_reset_counters(0, EXACT)
    assert client.bm_mt_read_counter(0, EXACT, handle) == CounterValue(0, 0)
    assert client.refusal("bm_mt_read_counter", 0, LPM, 0) == TableCode.COUNTERS_DISABLED
    aging = client.bm_mt_add_entry(0, AGING, [exact(MAC)], "EntitiesIngress.forward_metered", [b"\x01"], NONE)
    rates = [MeterRate(0.001, 10), MeterRate(0.002, 20)]
    client.bm_mt_set_meter_rates(0, AGING, aging, rates)
    assert client.bm_mt_get_meter_rates(0, AGING, aging) == rates
    (metered,) = state(switch).tables[AGING]
    assert metered.meter_config == MeterConfig(1_000, 10, 2_000, 20)
    assert client.refusal("bm_mt_set_meter_rates", 0, AGING, aging, rates[:1]) == TableCode.INVALID_METER_OPERATION
    assert client.refusal("bm_mt_set_meter_rates", 0, EXACT, handle, rates) == TableCode.METERS_DISABLED
    client.bm_mt_set_entry_ttl(0, AGING, aging, 1500)
    assert client.bm_mt_get_entry(0, AGING, aging).life.timeout_ms == 1500
    assert client.refusal("bm_mt_set_entry_ttl", 0, EXACT, handle, 1) == TableCode.AGEING_DISABLED


def test_members_and_groups(client: Client, switch: Switch) -> None:
    members = [client.bm_mt_act_prof_add_member(0, ECMP, FORWARD, [bytes([port])]) for port in (1, 2)]
    assert (members, client.bm_mt_act_prof_create_group(0, ECMP)) == ([0, 1], 0)
    for member in members:
        client.bm_mt_act_prof_add_member_to_group(0, ECMP, member, 0)
    again = client.refusal("bm_mt_act_prof_add_member_to_group", 0, ECMP, 0, 0)
    assert again == TableCode.MEMBER_ALREADY_IN_GROUP
    assert client.bm_mt_indirect_ws_add_entry(0, SELECTOR, [lpm(MAC, 8)], 0, NONE) == 0
    assert client.bm_mt_indirect_add_entry(0, SELECTOR, [lpm(MAC, 9)], 1, NONE) == 1
    assert [group.members[0].member for group in state(switch).profiles[ECMP].groups.values()] == [1]  # ids from 1
    entries = client.bm_mt_get_entries(0, SELECTOR)
    assert [(entry.action_entry.grp_handle, entry.action_entry.mbr_handle) for entry in entries] == [
        (0, None),
        (None, 1),
    ]
    assert client.bm_mt_act_prof_get_group(0, ECMP, 0).mbr_handles == [0, 1]
    assert [member.action_data for member in client.bm_mt_act_prof_get_members(0, ECMP)] == [
        [b"\x00\x01"],
        [b"\x00\x02"],
    ]
    for name, arguments, code in (
        ("bm_mt_indirect_ws_add_entry", (SELECTOR, [lpm(MAC, 7)], 9, NONE), TableCode.INVALID_GROUP_HANDLE),
        ("bm_mt_indirect_add_entry", (SELECTOR, [lpm(MAC, 7)], 9, NONE), TableCode.INVALID_MEMBER_HANDLE),
        ("bm_mt_indirect_ws_add_entry", (PROFILE, [exact(MAC)], 0, NONE), TableCode.WRONG_TABLE_TYPE),
        ("bm_mt_act_prof_delete_group", (ECMP, 0), TableCode.GROUP_STILL_USED),
        ("bm_mt_act_prof_delete_member", (ECMP, 0), TableCode.MEMBER_STILL_USED),
        ("bm_mt_act_prof_create_group", (HOPS,), TableCode.NO_ACTION_PROFILE_SELECTION),
        ("bm_mt_act_prof_create_group", ("gone",), TableCode.INVALID_ACTION_PROFILE_NAME),
        ("bm_mt_act_prof_get_member", (ECMP, 9), TableCode.INVALID_MEMBER_HANDLE),
        ("bm_mt_indirect_set_default_member", (SELECTOR, 0), TableCode.ERROR),
    ):
        assert client.refusal(name, 0, *arguments) == code, name
    client.bm_mt_act_prof_remove_member_from_group(0, ECMP, 1, 0)
    assert client.refusal("bm_mt_act_prof_remove_member_from_group", 0, ECMP, 1, 0) == TableCode.MEMBER_NOT_IN_GROUP
    client.bm_mt_act_prof_modify_member(0, ECMP, 0, DROP, [])
    client.bm_mt_indirect_ws_modify_entry(0, SELECTOR, 1, 0)
    client.bm_mt_act_prof_delete_member(0, ECMP, 1)
    assert client.bm_mt_act_prof_get_groups(0, ECMP)[0].mbr_handles == [0]


def test_arrays(client: Client, switch: Switch) -> None:
    counter, meter, cells = "EntitiesIngress.port_counter", "EntitiesIngress.port_meter", "EntitiesIngress.cells"
    client.bm_counter_write(0, counter, 1, CounterValue(5, 6))
    assert client.bm_counter_read(0, counter, 1) == CounterValue(5, 6)
    client.bm_counter_reset_all(0, counter)
    assert client.bm_counter_read(0, counter, 1) == CounterValue(0, 0)
    rates = [MeterRate(1.5, 10), MeterRate(2.0, 20)]
    assert client.bm_meter_get_rates(0, meter, 0) == []
    client.bm_meter_array_set_rates(0, meter, rates)
    assert client.bm_meter_get_rates(0, meter, 3) == rates
    client.bm_register_write_range(0, cells, 1, 3, 1 << 33 | 9)  # a cell has 32 bits
    assert client.bm_register_read_all(0, cells) == [0, 9, 9, 0]
    client.bm_register_reset(0, cells)
    assert client.bm_register_read(0, cells, 1) == 0
    client.bm_register_write(0, "EntitiesIngress.wide_cells", 0, -1)
    assert state(switch).registers["EntitiesIngress.wide_cells"][0] == all_ones(64)
    for name, arguments, code in (
        ("bm_counter_read", ("gone", 0), 1),
        ("bm_counter_read", (counter, 8), 2),
        ("bm_meter_get_rates", ("gone", 0), 1),
        ("bm_meter_get_rates", (meter, -1), 2),
        ("bm_meter_set_rates", (meter, 0, rates[:1]), 3),
        ("bm_meter_set_rates", (meter, 0, [MeterRate(float("nan"), 1)] * 2), 3),
        ("bm_meter_set_rates", (meter, 0, rates[::-1]), 3),
        ("bm_register_read", ("gone", 0), 1),
        ("bm_register_read", (cells, 4), 2),
        ("bm_register_write_range", (cells, 2, 5, 0), 2),
        ("bm_parse_vset_get", ("gone",), 1),
        ("bm_parse_vset_add", ("EntitiesParser.control_types", b"\x01\x00\x00"), 2),
    ):
        assert client.refusal(name, 0, *arguments) == code, name


def test_value_sets(client: Client) -> None:
    name = "EntitiesParser.control_types"
    for value in (b"\x88\xcc", b"\x88\xcc", b"\x07"):
        client.bm_parse_vset_add(0, name, value)
    assert client.bm_parse_vset_get(0, name) == [b"\x88\xcc", b"\x00\x07"]
    client.bm_parse_vset_remove(0, name, b"\x88\xcc")
    assert client.bm_parse_vset_get(0, name) == [b"\x00\x07"]
    client.bm_parse_vset_clear(0, name)
    assert client.bm_parse_vset_get(0, name) == []


@pytest.mark.parametrize("service", ["simple_pre", "simple_pre_lag"])
def test_multicast_groups_and_mirroring(client: Client, switch: Switch, service: str) -> None:
    more = [""] if service == "simple_pre_lag" else []
    pre, mirror = client.of(service), client.of("simple_switch")
    assert pre.bm_mc_mgrp_create(0, 4) == 4
    assert [pre.bm_mc_node_create(0, rid, "110", *more) for rid in (7, 8)] == [0, 1]
    for node in (0, 1):
        pre.bm_mc_node_associate(0, 4, node)
    mirror.mirroring_session_add(9, MirroringConfig(mgid=4))
    mirror.mirroring_session_add(10, MirroringConfig(port=2))
    current = state(switch)
    assert list(current.multicast_groups[4]) == [Replica(1, 7), Replica(2, 7), Replica(1, 8), Replica(2, 8)]
    assert current.clone_sessions[9].replicas == current.multicast_groups[4]
    pre.bm_mc_node_update(0, 0, "1000", *more)
    pre.bm_mc_node_dissociate(0, 4, 1)
    assert list(current.multicast_groups[4]) == list(current.clone_sessions[9].replicas) == [Replica(3, 7)]
    entries = json.loads(pre.bm_mc_get_entries(0))
    assert entries["mgrps"] == [{"id": 4, "l1_handles": [0]}]
    assert entries["l2_handles"][0]["ports"] == [3]
    assert mirror.mirroring_session_get(9) == MirroringConfig(mgid=4)
    assert mirror.mirroring_mapping_get_egress_port(10) == 2
    for name, arguments, code in (
        ("bm_mc_mgrp_create", (0,), MulticastCode.INVALID_MGID),
        ("bm_mc_node_associate", (5, 0), MulticastCode.INVALID_GROUP_HANDLE),
        ("bm_mc_node_associate", (4, 5), MulticastCode.INVALID_NODE_HANDLE),
        ("bm_mc_node_create", (1, "2", *more), MulticastCode.ERROR),
        ("bm_mc_node_create", (1, "1" * 600, *more), MulticastCode.ERROR),
    ):
        assert pre.refusal(name, 0, *arguments) == code, name
    pre.bm_mc_node_destroy(0, 0)
    pre.bm_mc_mgrp_destroy(0, 4)
    assert not current.multicast_groups
    assert not current.clone_sessions[9].replicas
    assert mirror.mirroring_mapping_delete(9) == 0
    assert mirror.mirroring_mapping_delete(9) == -1
    assert mirror.refusal("mirroring_session_get", 9) == 1


def test_queues(client: Client, switch: Switch) -> None:
    queues = client.of("simple_switch")
    assert queues.set_egress_queue_depth(1, 20) == 0
    assert queues.set_all_egress_queue_rates(100) == 0
    assert queues.set_egress_queue_rate(9, 1) == -1  # bmv2's clients know no other error
    assert queues.set_egress_priority_queue_depth(1, 0, 5) == -1
    assert queues.get_time_elapsed_us() == 0
    out = b"\x00" * 14
    client.bm_mt_set_default_action(0, "EntitiesIngress.keyless", FORWARD, [b"\x01"])
    switch.receive(2, [out] * 30)
    departures = switch.advance(10**10)
    assert len(departures) == 20
    assert departures[-1].departs_ns == 190_000_000


def test_the_switch_itself(client: Client, switch: Switch) -> None:
    source = (PROGRAMS / "p4rt_entities.json").read_bytes()
    assert client.bm_get_config().encode() == source
    assert client.bm_get_config_md5() == hashlib.md5(source, usedforsecurity=False).digest()
    assert client.bm_mgmt_get_info().device_id == DEVICE
    client.bm_dev_mgr_remove_port(1)
    assert [(port.port_num, port.is_up) for port in client.bm_dev_mgr_show_ports()] == [
        (1, False),
        (2, True),
        (3, True),
    ]
    client.bm_dev_mgr_add_port("1", 1, "")
    assert client.bm_dev_mgr_show_ports()[0].is_up
    assert client.refusal("bm_dev_mgr_add_port", "eth9", 9, "") == 1
    ids = [client.bm_get_id_from_name(0, kind, name) for kind, name in ((0, LPM), (1, ECMP))]
    assert all(isinstance(number, int) for number in ids)
    assert client.refusal("bm_get_id_from_name", 0, 0, "gone") == 1
    assert client.refusal("bm_learning_ack_buffer", 0, 1, 1) == 3
    add(client, PORT)
    client.bm_reset_state()
    assert client.bm_mt_get_num_entries(0, EXACT) == 0
    assert client.refusal("bm_swap_configs") == 3
    client.bm_load_new_config((PROGRAMS / "forwarding.json").read_text())
    client.bm_swap_configs()
    assert switch.program is not None
    assert switch.program.name == "forwarding"
    with pytest.raises(TApplicationException, match="is not JSON"):
        client.bm_load_new_config("{")
