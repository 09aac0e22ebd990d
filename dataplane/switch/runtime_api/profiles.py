"""Methods on action profiles. A handle is P4Runtime's id less one: bmv2 counts from 0."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionSpec
from dataplane.switch.runtime_api.records import Group as GroupRecord
from dataplane.switch.runtime_api.records import Member, TableCode, TableRefusal
from dataplane.switch.runtime_api.runtime import Books, Runtime
from dataplane.switch.runtime_api.values import call_of, data_of, handle_of, refusal_of
from dataplane.switch.tables import Group, GroupMember
from dataplane.switch.tables.profile import Profile


class _Opened:
    """A profile and the actions that its members may have."""

    def __init__(self, books: Books, name: str) -> None:
        profile = books.state.profiles.get(name)
        if profile is None:
            raise TableRefusal(TableCode.INVALID_ACTION_PROFILE_NAME)
        self.profile: Profile = profile
        self.actions: dict[str, ActionSpec] = dict(books.state.program.actions)

    def member(self, handle: int) -> int:
        """Return a member's id; raise INVALID_MBR_HANDLE."""
        if handle + 1 not in self.profile.members:
            raise TableRefusal(TableCode.INVALID_MEMBER_HANDLE)
        return handle + 1

    def group(self, handle: int) -> Group:
        """Return a group; raise INVALID_GRP_HANDLE."""
        self.require_selector()
        present = self.profile.groups.get(handle + 1)
        if present is None:
            raise TableRefusal(TableCode.INVALID_GROUP_HANDLE)
        return present

    def require_selector(self) -> None:
        """Raise NO_ACTION_PROFILE_SELECTION if there are no groups."""
        if not self.profile.spec.selector:
            raise TableRefusal(TableCode.NO_ACTION_PROFILE_SELECTION)

    def record(self, identifier: int) -> Member:
        """Return a member as bmv2 sends it."""
        call = self.profile.members[identifier]
        return Member(handle_of(identifier), call.action, data_of(self.actions, call))


class ProfileMethods:
    """The methods of `standard` whose objects are action profiles."""

    runtime: Runtime

    @contextmanager
    def _profile(self, name: str) -> Iterator[_Opened]:
        with self.runtime.books() as books:
            try:
                yield _Opened(books, name)
            except EntryError as error:
                raise refusal_of(error) from error

    def bm_mt_act_prof_add_member(self, _: int, name: str, action: str, data: Sequence[bytes]) -> int:
        """Add a member; return its handle."""
        with self._profile(name) as opened:
            handle = _first_free(opened.profile.members)
            opened.profile.insert_member(handle + 1, call_of(opened.actions, action, data))
            return handle

    def bm_mt_act_prof_modify_member(self, _: int, name: str, handle: int, action: str, data: Sequence[bytes]) -> None:
        """Change a member's action."""
        with self._profile(name) as opened:
            opened.profile.modify_member(opened.member(handle), call_of(opened.actions, action, data))

    def bm_mt_act_prof_delete_member(self, _: int, name: str, handle: int) -> None:
        """Remove a member that nothing points to."""
        with self._profile(name) as opened:
            opened.profile.delete_member(opened.member(handle))

    def bm_mt_act_prof_create_group(self, _: int, name: str) -> int:
        """Make an empty group; return its handle."""
        with self._profile(name) as opened:
            opened.require_selector()
            handle = _first_free(opened.profile.groups)
            opened.profile.insert_group(Group(handle + 1))
            return handle

    def bm_mt_act_prof_delete_group(self, _: int, name: str, handle: int) -> None:
        """Remove a group that no entry points to."""
        with self._profile(name) as opened:
            try:
                opened.profile.delete_group(opened.group(handle).group_id)
            except EntryError as error:
                if error.fault is EntryFault.IN_USE:
                    raise TableRefusal(TableCode.GROUP_STILL_USED) from error
                raise

    def bm_mt_act_prof_add_member_to_group(self, _: int, name: str, member: int, handle: int) -> None:
        """Put a member into a group."""
        with self._profile(name) as opened:
            group, identifier = opened.group(handle), opened.member(member)
            if any(weighted.member == identifier for weighted in group.members):
                raise TableRefusal(TableCode.MEMBER_ALREADY_IN_GROUP)
            opened.profile.modify_group(replace(group, members=(*group.members, GroupMember(identifier))))

    def bm_mt_act_prof_remove_member_from_group(self, _: int, name: str, member: int, handle: int) -> None:
        """Take a member out of a group."""
        with self._profile(name) as opened:
            group, identifier = opened.group(handle), opened.member(member)
            left = tuple(weighted for weighted in group.members if weighted.member != identifier)
            if len(left) == len(group.members):
                raise TableRefusal(TableCode.MEMBER_NOT_IN_GROUP)
            opened.profile.modify_group(replace(group, members=left))

    def bm_mt_act_prof_get_members(self, _: int, name: str) -> list[Member]:
        """Return every member."""
        with self._profile(name) as opened:
            return [opened.record(identifier) for identifier in opened.profile.members]

    def bm_mt_act_prof_get_member(self, _: int, name: str, handle: int) -> Member:
        """Return a member."""
        with self._profile(name) as opened:
            return opened.record(opened.member(handle))

    def bm_mt_act_prof_get_groups(self, _: int, name: str) -> list[GroupRecord]:
        """Return every group."""
        with self._profile(name) as opened:
            opened.require_selector()
            return [_record(group) for group in opened.profile.groups.values()]

    def bm_mt_act_prof_get_group(self, _: int, name: str, handle: int) -> GroupRecord:
        """Return a group."""
        with self._profile(name) as opened:
            return _record(opened.group(handle))


def _first_free(present: Collection[int]) -> int:
    """Return the smallest unused handle; ids are handles plus one."""
    handle = 0
    while handle + 1 in present:
        handle += 1
    return handle


def _record(group: Group) -> GroupRecord:
    return GroupRecord(handle_of(group.group_id), [handle_of(weighted.member) for weighted in group.members])
