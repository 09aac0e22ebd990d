"""Configuration that a topology implies for each switch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from finsy import P4ActionProfileGroup, P4IndirectAction, P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.tables.base import RULE_ROOM
from controller.network.tables.entities import Entities, EntityKey, Kind
from controller.network.tables.routing import IPV4, group_ids
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.int_watch import Watch, instruction_bitmap
from controller.network.tables.telemetry.reporting import Reporting
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities

MakeTopology = Callable[..., Topology]


def entry(entities: Entities, table: str, **match: int | tuple[int, int]) -> P4TableEntry:
    """Return the one entry of a table with exactly this match."""
    entries = [
        entity
        for key, entity in entities.items()
        if key.table == table and key.kind in (Kind.ENTRY, Kind.DEFAULT) and dict(key.match) == match
    ]
    assert len(entries) == 1
    assert isinstance(entries[0], P4TableEntry)
    return entries[0]


def action(entities: Entities, table: str, **match: int | tuple[int, int]) -> P4TableAction:
    """Return the direct action of that entry."""
    chosen = entry(entities, table, **match).action
    assert isinstance(chosen, P4TableAction)
    return chosen


def test_ports_have_addresses_and_roles(diamond: Topology) -> None:
    entities = base_entities(diamond)["a"]
    assert action(entities, "node").args == {"node_id": 1}
    assert action(entities, "egress_ports", egress_port=1).args == {
        "src_mac": 0x020100010001,
        "sink": 1,
        "mtu_bytes": 0,
        "strip_at_mtu": 0,
    }
    assert action(entities, "egress_ports", egress_port=3).args == {
        "src_mac": 0x020100010003,
        "sink": 0,
        "mtu_bytes": 0,
        "strip_at_mtu": 0,
    }
    role = action(entities, "port_roles", ingress_port=1)
    assert (role.name, role.args) == (
        "set_source_port",
        {
            "addr": 0x0A000101,
            "mask": 2**32 - 1,
            "ipv6_addr": 0xFD00 << 112 | 1 << 64 | 1,
            "ipv6_mask": 2**128 - 1,
        },
    )
    assert [key for key in entities if key.table == "port_roles" and dict(key.match) != {"ingress_port": 1}] == []


def test_local_host_is_reached_through_its_port_and_address(diamond: Topology) -> None:
    entities = base_entities(diamond)["a"]
    route = entry(entities, "ipv4_routes", dst_addr=(0x0A000101, 32))
    assert route.action == P4IndirectAction(member_id=1)
    member = entities[EntityKey(Kind.MEMBER, "ipv4_ecmp", (), 1)]
    assert member.action == P4TableAction("forward", egress_port=1, dst_mac=0x020000010001)  # type: ignore[union-attr]


def test_equal_ways_become_a_group_of_both_members(diamond: Topology) -> None:
    entities = base_entities(diamond)["a"]
    route = entry(entities, "ipv4_routes", dst_addr=(0x0A000401, 32))
    assert isinstance(route.action, P4IndirectAction)
    assert route.action.group_id is not None
    group = entities[EntityKey(Kind.GROUP, "ipv4_ecmp", (), route.action.group_id)]
    assert isinstance(group, P4ActionProfileGroup)
    assert [member.member_id for member in group.members or ()] == [2, 3]
    six = entry(entities, "ipv6_routes", dst_addr=(0xFD00 << 112 | 4 << 64 | 1, 128))
    assert six.action == route.action


def test_a_host_without_ipv6_has_no_ipv6_route(diamond: Topology) -> None:
    entities = base_entities(diamond)["a"]
    assert sum(key.table == "ipv4_routes" for key in entities) == 4
    assert sum(key.table == "ipv6_routes" for key in entities) == 3


def test_reports_leave_by_one_port_toward_the_collector(diamond: Topology) -> None:
    entities = base_entities(diamond)
    target = action(entities["d"], "report_target").args
    assert target == {
        "src_mac": 0x020100040003,
        "dst_mac": 0x020100030003,
        "src_addr": 0x0A0004FE,
        "dst_addr": 0x0A000301,
        "udp_port": 32766,
    }
    session = entities["d"][EntityKey(Kind.CLONE, "", (), 250)]
    assert session.replicas == (3,)  # type: ignore[union-attr]
    here = action(entities["c"], "report_target").args
    assert here["dst_mac"] == 0x020000030001


def test_no_collector_means_no_telemetry(diamond: Topology) -> None:
    quiet = Topology("quiet", diamond.switches, diamond.hosts, diamond.links)
    tables = {key.table for entities in base_entities(quiet).values() for key in entities}
    assert not tables & {"report_target", "ipv4_watchlist", "ipv6_watchlist"}


def test_default_instructions_are_bits_0_to_5_and_7(diamond: Topology) -> None:
    assert instruction_bitmap((0, 1, 2, 3, 4, 5, 7)) == 0xFD00
    watch = action(base_entities(diamond)["a"], "ipv4_watchlist", protocol=(17, 255)).args
    assert watch == {"watch_id": 0, "sample_every": 1, "instructions": 0xFD00, "max_hops": 16, "mode": 0} | {
        "domain_instructions": 0,
        "discard": 0,
    }


def test_rules_keep_their_order_and_own_sampling_counters(diamond: Topology) -> None:
    watches = (Watch(src="ha", dst="hb", protocol=6, dst_port=80, sample_every=10), Watch())
    entities = base_entities(diamond, watches)["a"]
    rules = [entity for key, entity in entities.items() if key.table.endswith("watchlist")]
    assert all(isinstance(rule, P4TableEntry) for rule in rules)
    first = entry(
        entities,
        "ipv4_watchlist",
        protocol=(6, 255),
        src_addr=(0x0A000101, 0xFFFFFFFF),
        dst_addr=(0x0A000201, 0xFFFFFFFF),
        dst_port=(80, 0xFFFF),
    )
    assert first.priority == 3
    assert entry(entities, "ipv4_watchlist", protocol=(17, 255)).priority == 2
    ids = [rule.action.args["watch_id"] for rule in rules]  # type: ignore[union-attr]
    assert len(set(ids)) == len(ids) == 5  # hb has no IPv6 address, so the first rule has no second half


def test_a_rule_for_an_unknown_host_is_named(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match="watches: there is no host 'nobody'"):
        base_entities(diamond, (Watch(src="nobody"),))


def even(*ports: int) -> tuple[tuple[int, int], ...]:
    """Return ports of equal weight."""
    return tuple((port, 1) for port in ports)


def test_group_ids_depend_only_on_ports_and_weights() -> None:
    few = group_ids([even(1, 2), even(2, 3), even(1), ((1, 1), (2, 3))])
    assert set(few) == {even(1, 2), even(2, 3), ((1, 1), (2, 3))}
    many = group_ids([even(a, b) for a in range(1, 60) for b in range(a + 1, 60)])
    assert len(set(many.values())) == len(many)
    assert many[even(1, 2)] == few[even(1, 2)]


def test_every_reference_has_its_target(diamond: Topology) -> None:
    for entities in base_entities(diamond).values():
        for key in entities:
            if key.table == IPV4.routes:
                action = entities[key].action  # type: ignore[union-attr]
                assert isinstance(action, P4IndirectAction)
                wanted = (
                    EntityKey(Kind.GROUP, IPV4.selector, (), action.group_id)
                    if action.group_id is not None
                    else EntityKey(Kind.MEMBER, IPV4.selector, (), action.member_id or 0)
                )
                assert wanted in entities


def test_rules_beyond_the_table_size_are_refused(diamond: Topology) -> None:
    """Otherwise the switch refuses them and is never reconciled."""
    few = Reporting(drops=(DropWatch(),) * 32)
    base_entities(diamond, reporting=few)
    with pytest.raises(ControllerError, match="other_drop_watch: 33 entries needed, but a switch has room for 32"):
        base_entities(diamond, reporting=Reporting(drops=(DropWatch(),) * 33))
    with pytest.raises(ControllerError, match="ipv4_watchlist: 1026 entries needed, but a switch has room for 1024"):
        base_entities(diamond, (Watch(),) * 513)


def test_the_room_for_rules_is_the_programs() -> None:
    tables = {table.alias: table.size for table in load_schema(*fabric_program()).tables}
    assert {name: tables[name] for name in RULE_ROOM} == RULE_ROOM
