"""Members, groups, one-shot action sets: selection by hash, and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    CounterSpec,
    KeyField,
    MatchKind,
    MeterSpec,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.switch.tables import (
    ActionSet,
    ForwardingState,
    Group,
    GroupMember,
    Profile,
    Table,
    TableEntry,
    WeightedAction,
)

KEY = (KeyField("dst", MatchKind.EXACT, 8),)


@dataclass(frozen=True)
class Program:
    """Two tables, one over a selector and one over a plain profile."""

    actions: dict[str, ActionSpec] = field(default_factory=lambda: {"forward": ActionSpec("forward", (("port", 9),))})
    tables: dict[str, TableSpec] = field(
        default_factory=lambda: {
            name: TableSpec(name, KEY, ("forward",), ActionCall("forward", (0,)), False, 8, profile)
            for name, profile in (("routes", "ecmp"), ("hops", "plain"))
        }
    )
    profiles: dict[str, ProfileSpec] = field(
        default_factory=lambda: {
            "ecmp": ProfileSpec("ecmp", 8, 4, selector=True),
            "plain": ProfileSpec("plain", 2, 0, selector=False),
        }
    )
    counters: dict[str, CounterSpec] = field(default_factory=dict)
    registers: dict[str, RegisterSpec] = field(default_factory=dict)
    meters: dict[str, MeterSpec] = field(default_factory=dict)
    value_sets: dict[str, ValueSetSpec] = field(default_factory=dict)


@pytest.fixture
def state() -> ForwardingState:
    return ForwardingState(Program())


@pytest.fixture
def ecmp(state: ForwardingState) -> Profile:
    profile = state.profiles["ecmp"]
    for member in (1, 2, 3):
        profile.insert_member(member, forward(member))
    return profile


@pytest.fixture
def routes(state: ForwardingState) -> Table:
    return state.tables["routes"]


def forward(port: int) -> ActionCall:
    return ActionCall("forward", (port,))


def group(*places: tuple[int, int], group_id: int = 1, max_size: int = 4) -> Group:
    return Group(group_id, tuple(GroupMember(member, weight) for member, weight in places), max_size)


def action_set(*weights: int) -> ActionSet:
    return ActionSet(tuple(WeightedAction(forward(port), weight) for port, weight in enumerate(weights, 1)))


def refused(caught: pytest.ExceptionInfo[EntryError], fault: EntryFault) -> bool:
    return caught.value.fault is fault


def test_a_member_is_resolved_whatever_the_hash(ecmp: Profile, routes: Table) -> None:
    routes.insert(TableEntry((1,), member=2))
    entry = routes.lookup((1,))
    assert entry is not None
    assert {ecmp.resolve(entry, value) for value in range(9)} == {forward(2)}
    ecmp.modify_member(2, forward(9))
    assert ecmp.resolve(entry, 0) == forward(9)


def test_the_hash_chooses_in_the_order_of_member_ids_by_weight(ecmp: Profile) -> None:
    ecmp.insert_group(group((3, 1), (1, 2), (2, 1)))
    entry = TableEntry((1,), group=1)
    assert [ecmp.resolve(entry, value) for value in range(5)] == [forward(port) for port in (1, 1, 2, 3, 1)]
    ecmp.modify_member(2, forward(7))
    assert ecmp.resolve(entry, 2) == forward(7)
    ecmp.modify_group(group((3, 1)))
    assert {ecmp.resolve(entry, value) for value in range(5)} == {forward(3)}


def test_an_empty_group_resolves_to_nothing(ecmp: Profile) -> None:
    ecmp.insert_group(group())
    assert ecmp.resolve(TableEntry((1,), group=1), 5) is None
    assert ecmp.resolve(TableEntry((1,), action_set=ActionSet(())), 5) is None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_a_choice_visits_each_action_as_often_as_its_weight(weights: list[int]) -> None:
    choice = action_set(*weights)
    chosen = Counter(choice.pick(value) for value in range(sum(weights)))
    assert chosen == {forward(port): weight for port, weight in enumerate(weights, 1)}
    assert choice.pick(sum(weights)) == choice.pick(0)


def test_members(ecmp: Profile) -> None:
    with pytest.raises(EntryError) as caught:
        ecmp.insert_member(1, forward(1))
    assert refused(caught, EntryFault.EXISTS)
    with pytest.raises(EntryError) as caught:
        ecmp.insert_member(4, ActionCall("forward", (512,)))
    assert refused(caught, EntryFault.INVALID)
    with pytest.raises(EntryError) as caught:
        ecmp.modify_member(4, forward(1))
    assert refused(caught, EntryFault.NOT_FOUND)
    with pytest.raises(EntryError) as caught:
        ecmp.delete_member(4)
    assert refused(caught, EntryFault.NOT_FOUND)
    assert sorted(ecmp.members) == [1, 2, 3]


def test_member_capacity(state: ForwardingState) -> None:
    plain = state.profiles["plain"]
    plain.insert_member(1, forward(1))
    plain.insert_member(2, forward(1))
    with pytest.raises(EntryError) as caught:
        plain.insert_member(3, forward(1))
    assert refused(caught, EntryFault.FULL)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (group((9, 1)), EntryFault.NOT_FOUND),
        (group((1, 1), (1, 1)), EntryFault.INVALID),
        (group((1, 0)), EntryFault.INVALID),
        (group((1, -1)), EntryFault.INVALID),
        (group((1, 5), max_size=0), EntryFault.FULL),
        (group((1, 1), max_size=5), EntryFault.INVALID),
        (group((1, 2), (2, 3)), EntryFault.FULL),
    ],
)
def test_refused_groups_change_nothing(ecmp: Profile, wrong: Group, fault: EntryFault) -> None:
    with pytest.raises(EntryError) as caught:
        ecmp.insert_group(wrong)
    assert refused(caught, fault)
    assert not ecmp.groups
    for member in (1, 2, 3):
        ecmp.delete_member(member)


def test_weights_of_all_groups_fit_the_profile(ecmp: Profile) -> None:
    ecmp.insert_group(group((1, 4)))
    ecmp.insert_group(group((1, 4), group_id=2))
    with pytest.raises(EntryError) as caught:
        ecmp.insert_group(group((2, 1), group_id=3))
    assert refused(caught, EntryFault.FULL)
    ecmp.modify_group(group((1, 3)))
    ecmp.insert_group(group((2, 1), group_id=3))


def test_groups_change_and_go(ecmp: Profile) -> None:
    ecmp.insert_group(group((1, 1)))
    with pytest.raises(EntryError) as caught:
        ecmp.insert_group(group((1, 1)))
    assert refused(caught, EntryFault.EXISTS)
    with pytest.raises(EntryError, match="max_size is 4") as caught:
        ecmp.modify_group(group((1, 1), max_size=3))
    with pytest.raises(EntryError) as caught:
        ecmp.modify_group(group((1, 1), group_id=5))
    assert refused(caught, EntryFault.NOT_FOUND)
    with pytest.raises(EntryError) as caught:
        ecmp.delete_group(5)
    assert refused(caught, EntryFault.NOT_FOUND)
    ecmp.delete_group(1)
    assert not ecmp.groups


def test_what_is_in_use_stays(ecmp: Profile, routes: Table) -> None:
    ecmp.insert_group(group((1, 1)))
    routes.insert(TableEntry((1,), group=1))
    routes.insert(TableEntry((2,), member=2))
    removals: list[Callable[[], None]] = [
        lambda: ecmp.delete_group(1),
        lambda: ecmp.delete_member(1),
        lambda: ecmp.delete_member(2),
    ]
    for remove in removals:
        with pytest.raises(EntryError) as caught:
            remove()
        assert refused(caught, EntryFault.IN_USE)
    routes.modify(TableEntry((2,), group=1))
    ecmp.delete_member(2)
    routes.delete((1,))
    routes.delete((2,))
    ecmp.delete_group(1)
    ecmp.delete_member(1)


def test_entries_point_at_what_exists(ecmp: Profile, routes: Table) -> None:
    for entry in (TableEntry((1,), member=9), TableEntry((1,), group=9)):
        with pytest.raises(EntryError) as caught:
            routes.insert(entry)
        assert refused(caught, EntryFault.NOT_FOUND)
    routes.insert(TableEntry((1,), member=1))
    with pytest.raises(EntryError):
        routes.modify(TableEntry((1,), group=9))
    with pytest.raises(EntryError, match="in use"):
        ecmp.delete_member(1)  # the refused change did not release it
    with pytest.raises(EntryError, match="a member, group or action set"):
        routes.insert(TableEntry((2,), call=forward(1)))


def test_action_sets(state: ForwardingState, routes: Table) -> None:
    routes.insert(TableEntry((1,), action_set=action_set(1, 2)))
    entry = routes.lookup((1,))
    assert entry is not None
    assert [state.profiles["ecmp"].resolve(entry, value) for value in range(3)] == [forward(1), forward(2), forward(2)]
    with pytest.raises(EntryError, match="add up to 5, more than 4") as caught:
        routes.insert(TableEntry((2,), action_set=action_set(5)))
    assert refused(caught, EntryFault.INVALID)
    with pytest.raises(EntryError) as caught:
        routes.insert(TableEntry((2,), action_set=action_set(0)))
    assert refused(caught, EntryFault.INVALID)
    routes.insert(TableEntry((2,), action_set=action_set(4)))
    with pytest.raises(EntryError) as caught:
        routes.insert(TableEntry((3,), action_set=action_set(2)))
    assert refused(caught, EntryFault.FULL)
    routes.modify(TableEntry((1,), action_set=action_set(4)))  # it may use the room of the group that it replaces
    routes.delete((1,))
    routes.insert(TableEntry((3,), action_set=action_set(2)))


def test_one_shot_or_members_but_not_both(state: ForwardingState, routes: Table) -> None:
    ecmp = state.profiles["ecmp"]
    routes.insert(TableEntry((1,), action_set=action_set(1)))
    with pytest.raises(EntryError, match="one-shot"):
        ecmp.insert_member(1, forward(1))
    routes.delete((1,))
    ecmp.insert_member(1, forward(1))
    with pytest.raises(EntryError, match="members or groups"):
        routes.insert(TableEntry((1,), action_set=action_set(1)))


def test_a_plain_profile_has_no_groups(state: ForwardingState) -> None:
    state.profiles["plain"].insert_member(1, forward(1))
    with pytest.raises(EntryError, match="need an action selector"):
        state.profiles["plain"].insert_group(group((1, 1)))
    with pytest.raises(EntryError, match="need an action selector"):
        state.tables["hops"].insert(TableEntry((1,), action_set=action_set(1)))


def test_one_shot_actions_whose_port_is_down_are_left_out(state: ForwardingState, routes: Table) -> None:
    actions = (WeightedAction(forward(1), 1, watch_port=1), WeightedAction(forward(2), 1, watch_port=2))
    routes.insert(TableEntry((1,), action_set=ActionSet(actions)))
    entry, profile = routes.lookup((1,)), state.profiles["ecmp"]
    assert entry is not None
    state.set_port_status(1, up=False)
    assert [profile.resolve(entry, digest) for digest in range(2)] == [forward(2)] * 2
    state.set_port_status(1, up=True)
    assert [profile.resolve(entry, digest) for digest in range(2)] == [forward(1), forward(2)]
