"""Weights and other numbers that compiled code cannot hold: refused in every way of writing, with nothing left."""

from __future__ import annotations

import json
from typing import Any

import pytest
from finsy.proto import p4r

from dataplane.clock import VirtualClock
from dataplane.errors import ConfigError, EntryError, EntryFault
from dataplane.program.objects import ActionCall, ProfileSpec
from dataplane.stf.entries import fill_from_file
from dataplane.switch.p4runtime import Code, P4RuntimeCore
from dataplane.switch.switch import PortSettings, Switch
from dataplane.switch.tables import (
    ActionSet,
    CloneSession,
    ForwardingState,
    Group,
    GroupMember,
    Profile,
    Replica,
    TableEntry,
    WeightedAction,
)
from dataplane.switch.tables.native import NativeState
from dataplane.switch.tables.profile import MAX_WEIGHT
from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell
from tests.foreign.bmv2_json import document, load, p4info

WRONG_WEIGHTS = (0, -1, -(1 << 31), MAX_WEIGHT + 1, 1 << 64)
TO = ActionCall("to", (7,))


@pytest.fixture
def state() -> ForwardingState:
    return ForwardingState(load(document("indirect_ws")))


@pytest.mark.parametrize("limit", [0, 4])
@pytest.mark.parametrize("weight", WRONG_WEIGHTS)
def test_weights_out_of_range_are_refused(weight: int, limit: int) -> None:
    profile = Profile(ProfileSpec("ap", 8, limit, selector=True), lambda _: None)
    with pytest.raises(EntryError, match=f"the action set: a weight of {weight} is not in 1"):
        profile.take(TableEntry((1,), action_set=ActionSet((WeightedAction(TO, weight),))))
    profile.insert_member(1, TO)
    with pytest.raises(EntryError, match=f"group 10: a weight of {weight} is not in 1"):
        profile.insert_group(Group(10, (GroupMember(1, weight),)))
    profile.insert_group(Group(11, (GroupMember(1),)))
    with pytest.raises(EntryError, match=f"group 11: a weight of {weight} is not in 1"):
        profile.modify_group(Group(11, (GroupMember(1, weight),)))
    assert profile.groups == {11: Group(11, (GroupMember(1),))}


@pytest.mark.parametrize("weight", [0, -1])
def test_p4runtime_refuses_weights_and_keeps_nothing(weight: int) -> None:
    switch = FakeSwitch()
    switch.commit(load(document("indirect_ws"), p4info("indirect_ws")))
    assert switch.state is not None
    native = NativeState(switch.state)
    shell = Shell(P4RuntimeCore(switch), p4info("indirect_ws"))
    shell.insert(shell.member("ap", 1, shell.action("to", b"\x01")))
    group = shell.group("ap", 10, (1, weight))
    assert shell.refusal(p4r.Update.INSERT, group) is Code.INVALID_ARGUMENT
    entry = shell.entry("t", [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x0a"))], group=10)
    assert shell.refusal(p4r.Update.INSERT, entry) is Code.NOT_FOUND
    assert shell.read(shell.group("ap", 0)) == []
    native.release()


class Refusing:
    """An observer out of memory for what `refuses` names."""

    def __init__(self, profile: Profile, refuses: str) -> None:
        self.profile, self.refuses = profile, refuses
        self.members: dict[int, ActionCall | None] = {}
        self.choices: dict[int, ActionSet | None] = {}

    def member_changed(self, member_id: int) -> None:
        self._refuse("member")
        self.members[member_id] = self.profile.members.get(member_id)

    def group_changed(self, group_id: int) -> None:
        self._refuse("group")
        self.choices[group_id] = self.profile.choice(group_id)

    def ports_changed(self) -> None:
        pass

    def _refuse(self, what: str) -> None:
        if self.refuses == what:
            self.refuses = ""  # once: the present state can be stored again
            raise EntryError(EntryFault.FULL, "not enough memory for its entries", where="ap")


CHANGES: dict[str, Any] = {
    "insert_member": ("member", lambda profile: profile.insert_member(3, TO)),
    "modify_member": ("member", lambda profile: profile.modify_member(1, TO)),
    "modify_member_in_a_group": ("group", lambda profile: profile.modify_member(1, TO)),
    "delete_member": ("member", lambda profile: profile.delete_member(2)),
    "insert_group": ("group", lambda profile: profile.insert_group(Group(11, (GroupMember(2, 2),)))),
    "modify_group": ("group", lambda profile: profile.modify_group(Group(10, (GroupMember(2, 5),)))),
    "delete_group": ("group", lambda profile: profile.delete_group(10)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_refused_change_of_a_profile_leaves_nothing(change: str) -> None:
    profile = Profile(ProfileSpec("ap", 8, 0, selector=True), lambda _: None)
    for member_id in (1, 2):
        profile.insert_member(member_id, ActionCall("to", (member_id,)))
    profile.insert_group(Group(10, (GroupMember(1, 3),)))
    refuses, apply = CHANGES[change]
    first, second = Refusing(profile, ""), Refusing(profile, refuses)
    profile.observers = (first, second)
    before = dict(profile.members), dict(profile.groups), profile.choice(10)
    with pytest.raises(EntryError, match="not enough memory"):
        apply(profile)
    assert (dict(profile.members), dict(profile.groups), profile.choice(10)) == before
    for observer in (first, second):
        assert all(profile.members.get(member_id) == call for member_id, call in observer.members.items())
        assert all(profile.choice(group_id) == choice for group_id, choice in observer.choices.items())
    profile.insert_group(Group(12, (GroupMember(2, 5),)))  # 5 of the 8 are free: the weights are counted as before
    profile.delete_group(10)
    profile.delete_member(1)  # nothing uses it any more
    assert profile.members == {2: ActionCall("to", (2,))}


def test_other_numbers_are_refused_before_anything_is_written(state: ForwardingState) -> None:
    native = NativeState(state)
    too_big = 1 << 64
    with pytest.raises(EntryError, match=r"multicast group 1: port -1 does not fit 32 bits"):
        state.multicast_groups[1] = (Replica(-1),)
    with pytest.raises(EntryError, match=r"multicast group 1: instance 18446744073709551616 does not fit 32 bits"):
        state.multicast_groups[1] = (Replica(1, too_big),)
    with pytest.raises(EntryError, match=r"clone session 1: packet length -1 does not fit 32 bits"):
        state.clone_sessions[1] = CloneSession((), packet_length_bytes=-1)
    with pytest.raises(EntryError, match=r"clone session 65536: its number is not in 0\.\.32767"):
        state.clone_sessions[1 << 16] = CloneSession(())
    assert (dict(state.multicast_groups), dict(state.clone_sessions)) == ({}, {})
    native.release()


def test_priorities_are_bounded() -> None:
    program = document()
    program["pipelines"][0]["tables"][0]["key"][0]["match_type"] = "ternary"
    state = ForwardingState(load(program))
    with pytest.raises(EntryError, match="priority 2147483648: it is above 2147483647"):
        state.tables["t"].insert(TableEntry(((1, 1),), 1 << 31, call=TO))
    assert len(state.tables["t"]) == 0


def test_runtime_file_names_the_entry_that_does_not_fit(tmp_path: Any) -> None:
    switch = Switch(0, [PortSettings(1)], VirtualClock())
    switch.commit(load(document()))
    file = tmp_path / "s1-runtime.json"
    replicas = [{"egress_port": -1, "instance": 1}]
    file.write_text(json.dumps({"multicast_group_entries": [{"multicast_group_id": 1, "replicas": replicas}]}))
    with pytest.raises(ConfigError, match=r"multicast_group_entries\[0\].*port -1 does not fit"):
        fill_from_file(switch, file)
