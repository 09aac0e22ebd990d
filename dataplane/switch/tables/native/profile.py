"""The native side of action profiles: a handle for each member, group and one-shot action set."""

from __future__ import annotations

from itertools import accumulate

from dataplane.switch.tables.entry import ActionSet, TableEntry, WeightedAction
from dataplane.switch.tables.match import Match
from dataplane.switch.tables.native import selection
from dataplane.switch.tables.native.heap import Heap
from dataplane.switch.tables.native.kernel_calls import check, check_made, function
from dataplane.switch.tables.native.requests import ActionTable, Request
from dataplane.switch.tables.native.selection import CHOICE_BYTES, ENTRY_WORDS
from dataplane.switch.tables.profile import Profile

OneShotKey = tuple[str, Match, int]
"""Table, match and priority of the entry that holds the set."""


class ProfileMirror:
    """Follows one profile."""

    def __init__(self, profile: Profile, actions: ActionTable, heap: Heap) -> None:
        self._profile, self._actions, self._heap = profile, actions, heap
        self._request = Request(profile.spec.name)
        self._members: dict[int, int] = {}  # addresses of handles
        self._groups: dict[int, int] = {}
        self._one_shots: dict[OneShotKey, tuple[int, ActionSet]] = {}
        for member_id in profile.members:
            self.member_changed(member_id)
        for group_id in profile.groups:
            self.group_changed(group_id)
        profile.observers += (self,)

    def choice(self, table: str, entry: TableEntry) -> int:
        """Return the address for the entry's `choice`; the set of a one-shot is made again."""
        if entry.member is not None:
            return self._members[entry.member]
        if entry.group is not None:
            return self._groups[entry.group]
        if entry.action_set is None:
            return 0
        handle = self._make(self._profile.usable(entry.action_set))
        self._one_shots[table, entry.match, entry.priority] = handle, entry.action_set
        return handle

    def one_shot(self, table: str, match: Match, priority: int) -> int:
        """Forget the handle of an entry's action set, to be retired once it is unlinked; 0 if there is none."""
        return self._one_shots.pop((table, match, priority), (0, None))[0]

    def restore(self, table: str, entry: TableEntry | None, handle: int) -> None:
        """Remember the handle of an entry's action set again, as the entry stays; 0 is none."""
        if handle and entry is not None and entry.action_set is not None:
            self._one_shots[table, entry.match, entry.priority] = handle, entry.action_set

    def retire(self, handle: int) -> None:
        """Release a handle that no entry uses any more."""
        if handle:
            check(function(selection.retire_handle)(self._heap.address, handle), self._profile.spec.name)

    def member_changed(self, member_id: int) -> None:
        """Follow the profile."""
        call = self._profile.members.get(member_id)
        self._follow(self._members, member_id, None if call is None else ActionSet((WeightedAction(call),)))

    def group_changed(self, group_id: int) -> None:
        """Follow the profile."""
        self._follow(self._groups, group_id, self._profile.choice(group_id))

    def ports_changed(self) -> None:
        """Follow the profile."""
        for handle, action_set in self._one_shots.values():
            if any(action.watch_port is not None for action in action_set.actions):
                self._put(handle, self._profile.usable(action_set))

    def free(self) -> None:
        """Free everything; no packet may look at it any more."""
        self._profile.observers = tuple(item for item in self._profile.observers if item is not self)
        one_shots = [handle for handle, _ in self._one_shots.values()]
        for handle in (*self._members.values(), *self._groups.values(), *one_shots):
            function(selection.free_handle)(self._heap.address, handle)

    def _follow(self, handles: dict[int, int], identifier: int, action_set: ActionSet | None) -> None:
        if action_set is None:
            self.retire(handles.get(identifier, 0))
            handles.pop(identifier, None)
        elif identifier in handles:
            self._put(handles[identifier], action_set)
        else:
            handles[identifier] = self._make(action_set)

    def _make(self, action_set: ActionSet) -> int:
        request = self._request.write(*self._words(action_set))
        return check_made(function(selection.make_handle)(self._heap.address, request), self._profile.spec.name)

    def _put(self, handle: int, action_set: ActionSet) -> None:
        request = self._request.write(*self._words(action_set))
        check(function(selection.put_choice)(self._heap.address, handle, request), self._profile.spec.name)

    def _words(self, action_set: ActionSet) -> list[int]:
        calls = [self._actions.words(action.call) for action in action_set.actions]
        ends = list(accumulate(action.weight for action in action_set.actions))
        arguments = [word for _, words in calls for word in words]
        size = CHOICE_BYTES // 8 + len(calls) * (1 + ENTRY_WORDS) + len(arguments)
        rows = [item for end, (number, words) in zip(ends, calls, strict=True) for item in (end, number, len(words))]
        return [ends[-1] if ends else 0, len(calls), size, *rows, *arguments]
