"""Identity and content of entities."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from finsy import (
    P4ActionProfileGroup,
    P4CloneSessionEntry,
    P4IndirectAction,
    P4Member,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)

from controller.common.errors import ControllerError
from controller.network.tables.entities import Kind, content_of, index, key_of, references, same


def test_spellings_of_an_address_are_one_key() -> None:
    prefix = P4TableEntry("t", match=P4TableMatch(dst_addr=IPv4Network("10.0.0.0/8")))
    numbers = P4TableEntry("t", match=P4TableMatch(dst_addr=(0x0A000000, 8)))
    assert key_of(prefix) == key_of(numbers)
    assert key_of(P4TableEntry("t", match=P4TableMatch(x=IPv4Address("0.0.0.9")))) == key_of(
        P4TableEntry("t", match=P4TableMatch(x=9))
    )


def test_fields_that_do_not_care_are_not_in_the_key() -> None:
    wide = P4TableEntry("t", match=P4TableMatch(dst_addr=(0, 0), protocol=(17, 255)), priority=3)
    assert key_of(wide) == key_of(P4TableEntry("t", match=P4TableMatch(protocol=(17, 255)), priority=3))


def test_priority_is_part_of_the_identity_and_the_action_is_not() -> None:
    match = P4TableMatch(protocol=(17, 255))
    low, high = (P4TableEntry("t", match=match, priority=priority) for priority in (1, 2))
    acting = P4TableEntry("t", match=match, priority=1, action=P4TableAction("forward", egress_port=1))
    assert key_of(low) != key_of(high)
    assert key_of(low) == key_of(acting)
    assert not same(low, acting)


def test_order_of_arguments_and_members_is_irrelevant() -> None:
    entry = P4TableEntry("t", action=P4TableAction("forward", egress_port=1, dst_mac=2))
    other = P4TableEntry("t", action=P4TableAction("forward", dst_mac=2, egress_port=1))
    assert same(entry, other)
    groups = [
        P4ActionProfileGroup("p", group_id=7, members=[P4Member(number, weight=1) for number in order])
        for order in ((1, 2), (2, 1))
    ]
    assert same(*groups)


def test_a_port_and_a_replica_of_instance_0_are_the_same() -> None:
    assert same(P4CloneSessionEntry(250, replicas=(3,)), P4CloneSessionEntry(250, replicas=((3, 0),)))
    assert not same(P4CloneSessionEntry(250, replicas=(3,)), P4CloneSessionEntry(250, replicas=((3, 1),)))


def test_index_refuses_two_meanings_of_one_entry() -> None:
    entries = [
        P4TableEntry("t", match=P4TableMatch(x=1), action=P4TableAction("forward", egress_port=port)) for port in (1, 2)
    ]
    with pytest.raises(ControllerError, match=r"entry t x=0x1: requested twice"):
        index(entries)
    assert len(index([entries[0], entries[0]])) == 1


def test_references_name_prerequisites() -> None:
    assert references(P4TableEntry("t", action=P4IndirectAction(group_id=4))) == (Kind.GROUP, frozenset({4}))
    assert references(P4TableEntry("t", action=P4IndirectAction(member_id=4))) == (Kind.MEMBER, frozenset({4}))
    assert references(P4TableEntry("t", action=P4TableAction("forward"))) is None


def test_text_instead_of_a_number_is_named() -> None:
    with pytest.raises(ControllerError, match="'eth0' is not a number"):
        content_of(P4TableEntry("t", action=P4TableAction("forward", egress_port="eth0")))
