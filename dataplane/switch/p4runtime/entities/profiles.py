"""ActionProfileMember and ActionProfileGroup (specification, section 9.2)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from dataplane.program.objects import ActionCall
from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.catalog import ProfileInfo
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind
from dataplane.switch.p4runtime.errors import invalid
from dataplane.switch.tables import Group


def write_member(context: Context, kind: UpdateKind, message: p4r.ActionProfileMember) -> None:
    """Insert, modify or delete a member."""
    info = context.catalog.profile(message.action_profile_id)
    profile = context.state.profiles[info.spec.name]
    if not message.member_id:
        raise invalid(f"{info.spec.name}: member id 0 is not valid")
    if kind is UpdateKind.DELETE:
        profile.delete_member(message.member_id)
    elif kind is UpdateKind.INSERT:
        profile.insert_member(message.member_id, _call(context, info, message))
    else:
        profile.modify_member(message.member_id, _call(context, info, message))


def _call(context: Context, info: ProfileInfo, message: p4r.ActionProfileMember) -> ActionCall:
    if not message.HasField("action"):
        raise invalid(f"{info.spec.name}: member {message.member_id}: the action is missing")
    if message.action.action_id not in info.action_ids:
        raise invalid(f"{info.spec.name}: action id {message.action.action_id:#010x} is not one of its tables' actions")
    return codec.decode_action(context.catalog, message.action, info.spec.name)


def undo_member(context: Context, message: p4r.ActionProfileMember) -> Undo:
    """Return a function that restores the member's present state."""
    profile = context.state.profiles[context.catalog.profile(message.action_profile_id).spec.name]
    member_id, present = message.member_id, profile.members.get(message.member_id)

    def restore() -> None:
        if present is None:
            profile.delete_member(member_id)
        elif member_id in profile.members:
            profile.modify_member(member_id, present)
        else:
            profile.insert_member(member_id, present)

    return restore


def read_member(context: Context, message: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
    """Return one member, a profile's members, or all."""
    members = [
        (info, member_id, call)
        for info in _profiles(context, message.action_profile_id)
        for member_id, call in context.state.profiles[info.spec.name].members.items()
        if message.member_id in {0, member_id}
    ]

    def encode() -> Iterator[p4r.Entity]:
        for info, member_id, call in members:
            member = p4r.ActionProfileMember(action_profile_id=info.profile_id, member_id=member_id)
            member.action.CopyFrom(codec.encode_action(context.catalog, call) or p4r.Action())
            yield p4r.Entity(action_profile_member=member)

    return encode()


def write_group(context: Context, kind: UpdateKind, message: p4r.ActionProfileGroup) -> None:
    """Insert, modify or delete a group."""
    info = context.catalog.profile(message.action_profile_id)
    profile = context.state.profiles[info.spec.name]
    if not message.group_id:
        raise invalid(f"{info.spec.name}: group id 0 is not valid")
    if kind is UpdateKind.DELETE:
        profile.delete_group(message.group_id)
        return
    where = f"{info.spec.name}: group {message.group_id}"
    places = tuple(codec.decode_member(context, member, where) for member in message.members)
    group = Group(message.group_id, places, message.max_size)
    if kind is UpdateKind.INSERT:
        profile.insert_group(group)
    else:
        profile.modify_group(group)


def undo_group(context: Context, message: p4r.ActionProfileGroup) -> Undo:
    """Return a function that restores the group's present state."""
    profile = context.state.profiles[context.catalog.profile(message.action_profile_id).spec.name]
    group_id, present = message.group_id, profile.groups.get(message.group_id)

    def restore() -> None:
        if present is None:
            profile.delete_group(group_id)
        elif group_id in profile.groups:
            profile.modify_group(present)
        else:
            profile.insert_group(present)

    return restore


def read_group(context: Context, message: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
    """Return one group, a selector's groups, or all."""
    groups = [
        (info, group)
        for info in _profiles(context, message.action_profile_id)
        for group in context.state.profiles[info.spec.name].groups.values()
        if message.group_id in {0, group.group_id}
    ]

    def encode() -> Iterator[p4r.Entity]:
        for info, group in groups:
            answer = p4r.ActionProfileGroup(
                action_profile_id=info.profile_id, group_id=group.group_id, max_size=group.max_size
            )
            for weighted in group.members:
                added = answer.members.add(member_id=weighted.member, weight=weighted.weight)
                numbered = isinstance(weighted, codec.NumberedMember)
                codec.encode_watch(context.catalog, added, weighted.watch_port, numbered=numbered)
            yield p4r.Entity(action_profile_group=answer)

    return encode()


def _profiles(context: Context, profile_id: int) -> list[ProfileInfo]:
    if profile_id:
        return [context.catalog.profile(profile_id)]
    return list(context.catalog.profiles.values())
