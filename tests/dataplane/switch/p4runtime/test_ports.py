"""Dependents of a port's status: members that watch it, and copies of packets with backups (sections 9.2 and 9.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from finsy.proto import p4r

from dataplane.switch.p4runtime import Code, P4RuntimeCore
from dataplane.switch.tables import CloneSession, ForwardingState, Replica

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY = p4r.Update.INSERT, p4r.Update.MODIFY
PREFIX = [p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=b"\x0a" + bytes(5), prefix_len=8))]


def state_of(switch: FakeSwitch) -> ForwardingState:
    assert switch.state is not None
    return switch.state


def ports_chosen(switch: FakeSwitch) -> list[int]:
    """Return the ports that the hash values 0 to 3 lead to; none where no action is left."""
    entry = state_of(switch).tables["EntitiesIngress.selector_table"].lookup((0x0A0000000001,))
    assert entry is not None
    calls = [state_of(switch).profiles["EntitiesIngress.ecmp"].resolve(entry, value) for value in range(4)]
    return [call.arguments[0] for call in calls if call is not None]


def watched_group(shell: Shell, *, numbered: bool = False) -> p4r.Entity:
    group = shell.group("ecmp", 1, (1, 1), (2, 1), (3, 1), max_size=4)
    for port, member in ((1, 0), (2, 1)):
        if numbered:
            group.action_profile_group.members[member].watch = port
        else:
            group.action_profile_group.members[member].watch_port = bytes([port])
    return group


def insert_members(shell: Shell) -> None:
    shell.insert(*(shell.member("ecmp", port, shell.action("forward", bytes([port]))) for port in (1, 2, 3)))


@pytest.mark.parametrize("numbered", [True, False])
def test_members_leave_their_group_while_their_port_is_down(shell: Shell, switch: FakeSwitch, numbered: bool) -> None:
    insert_members(shell)
    group = watched_group(shell, numbered=numbered)
    shell.insert(group)
    shell.insert(shell.entry("selector_table", PREFIX, group=1))
    assert ports_chosen(switch) == [1, 2, 3, 1]
    switch.set_port_status(1, False)
    assert ports_chosen(switch) == [2, 3, 2, 3]
    switch.set_port_status(2, False)
    assert ports_chosen(switch) == [3, 3, 3, 3]
    switch.set_port_status(1, True)
    assert ports_chosen(switch) == [1, 3, 1, 3]
    assert shell.read(p4r.Entity(action_profile_group=p4r.ActionProfileGroup())) == [group]


def one_shot(shell: Shell) -> p4r.Entity:
    entity = shell.entry("selector_table", PREFIX)
    action_set = entity.table_entry.action.action_profile_action_set
    action_set.action_selection_mode, action_set.size_semantics = action_set.HASH, action_set.SUM_OF_WEIGHTS
    action_set.action_profile_actions.add(action=shell.action("forward", b"\x01"), weight=1, watch_port=b"\x01")
    action_set.action_profile_actions.add(action=shell.action("forward", b"\x02"), weight=1, watch=2)
    return entity


def test_actions_of_a_one_shot_set_watch_ports_too(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(one_shot(shell))
    assert shell.read(shell.entry("selector_table")) == [one_shot(shell)]
    assert ports_chosen(switch) == [1, 2, 1, 2]
    switch.set_port_status(2, False)
    assert ports_chosen(switch) == [1, 1, 1, 1]
    switch.set_port_status(1, False)
    assert ports_chosen(switch) == []


def test_watched_ports_are_ports_of_the_switch(shell: Shell) -> None:
    insert_members(shell)
    for port in (b"\x09", b"\x01\x01", bytes(9) + b"\x10"):
        group = shell.group("ecmp", 1, (1, 1), max_size=4)
        group.action_profile_group.members[0].watch_port = port
        assert shell.refusal(INSERT, group) is Code.INVALID_ARGUMENT
    group.action_profile_group.members[0].watch = -1
    assert shell.refusal(INSERT, group) is Code.INVALID_ARGUMENT
    group.action_profile_group.members[0].watch_port = b"\x00\x08"
    shell.insert(group)
    (entity,) = shell.read(shell.group("ecmp", 1))
    assert entity.action_profile_group.members[0].watch_port == b"\x08"


def replica(port: int, *backups: int) -> p4r.Replica:
    made = p4r.Replica(port=bytes([port]), instance=port)
    for backup in backups:
        made.backup_replicas.add(port=bytes([backup]), instance=backup)
    return made


def group(*replicas: p4r.Replica) -> p4r.Entity:
    entry = p4r.MulticastGroupEntry(multicast_group_id=1, replicas=replicas)
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=entry))


def copies(switch: FakeSwitch) -> tuple[Replica, ...]:
    return state_of(switch).multicast_groups[1]


def session(*replicas: p4r.Replica) -> p4r.Entity:
    entry = p4r.CloneSessionEntry(session_id=1, replicas=replicas, class_of_service=3)
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(clone_session_entry=entry))


def test_backups_stand_in_by_preference(shell: Shell, switch: FakeSwitch) -> None:
    written = group(replica(1, 2, 3), replica(4))
    shell.insert(written)
    assert copies(switch) == (Replica(1, 1), Replica(4, 4))
    for port, up, present in (
        (1, False, (Replica(2, 2), Replica(4, 4))),
        (2, False, (Replica(3, 3), Replica(4, 4))),
        (3, False, (Replica(4, 4),)),
        (4, False, (Replica(4, 4),)),  # without backup the copy goes where the port drops it
        (2, True, (Replica(2, 2), Replica(4, 4))),
        (1, True, (Replica(1, 1), Replica(4, 4))),
    ):
        switch.set_port_status(port, up)
        assert copies(switch) == present
        assert shell.read(group()) == [written]
    switch.set_port_status(1, False)
    shell.modify(group(replica(1, 5)))
    assert copies(switch) == (Replica(5, 5),)


def test_clones_have_backups_too(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(session(replica(1, 2)))
    switch.set_port_status(1, False)
    assert state_of(switch).clone_sessions[1] == CloneSession((Replica(2, 2),), 3)
    assert shell.read(session()) == [session(replica(1, 2))]


def test_a_new_program_knows_which_ports_are_down(
    shell: Shell, core: P4RuntimeCore, switch: FakeSwitch, config: p4r.ForwardingPipelineConfig
) -> None:
    switch.set_port_status(1, False)
    action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_SAVE
    request = p4r.SetForwardingPipelineConfigRequest(
        device_id=7, election_id=p4r.Uint128(low=1), action=action, config=config
    )
    core.set_pipeline(request)
    shell.insert(group(replica(1, 2), replica(3, 4)))
    switch.set_port_status(3, False)
    request.action = p4r.SetForwardingPipelineConfigRequest.COMMIT
    request.ClearField("config")
    core.set_pipeline(request)
    assert state_of(switch).multicast_groups[1] == (Replica(2, 2), Replica(4, 4))
