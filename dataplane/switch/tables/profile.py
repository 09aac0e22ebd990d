"""Action profiles: members (actions with arguments) and groups of them, from which a hash chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ProfileSpec
from dataplane.switch.tables.entry import ActionSet, TableEntry, WeightedAction

CallCheck = Callable[[ActionCall], None]

MAX_WEIGHT = (1 << 31) - 1
"""P4Runtime's; the sum of all weights fits a word of compiled code."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member's place in a group; it takes `weight` places in the hash range, while its watched port is up."""

    member: int
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Members that share the traffic of the entries that point to the group.

    `max_size` limits the sum of their weights while the group exists; 0 sets no limit but the profile's own.
    """

    group_id: int
    members: tuple[GroupMember, ...] = ()
    max_size: int = 0


class ProfileObserver(Protocol):
    """Is notified after each change of a profile that can affect packets; an EntryError from it reverts the change."""

    def member_changed(self, member_id: int) -> None:
        """Handle a member that has another action, or is new, or gone."""
        ...

    def group_changed(self, group_id: int) -> None:
        """Handle a group that has another `choice`, or is new, or gone."""
        ...

    def ports_changed(self) -> None:
        """Handle ports that went up or down; groups are announced one by one, one-shot action sets are not."""
        ...


class Profile:
    """The members and groups of one action profile, and the action for an entry and a hash value.

    A group's members are ordered by id; each takes as many places as its weight, and the hash value modulo the sum of
    weights chooses. Referenced members and groups cannot be deleted. A profile is used through members and groups or
    through one-shot action sets, never both (P4Runtime, section 9.2.3). Its size limits members, and the sum of
    weights.
    """

    def __init__(self, spec: ProfileSpec, check_call: CallCheck) -> None:
        self.spec = spec
        self.members: dict[int, ActionCall] = {}
        self.groups: dict[int, Group] = {}
        self.observers: tuple[ProfileObserver, ...] = ()
        self._check_call = check_call
        self._down: frozenset[int] = frozenset()
        self._choices: dict[int, ActionSet] = {}
        self._member_uses: Counter[int] = Counter()
        self._group_uses: Counter[int] = Counter()
        self._weight = 0
        self._one_shots = 0

    def resolve(self, entry: TableEntry, hash_value: int) -> ActionCall | None:
        """Return the action for a packet that hit `entry`; None if its group or action set is empty."""
        if entry.member is not None:
            return self.members[entry.member]
        if entry.group is not None:
            return self._choices[entry.group].pick(hash_value)
        return None if entry.action_set is None else self.usable(entry.action_set).pick(hash_value)

    def choice(self, group_id: int) -> ActionSet | None:
        """Return a group's present choices; None if there is no such group."""
        return self._choices.get(group_id)

    def usable(self, action_set: ActionSet) -> ActionSet:
        """Return the actions of a one-shot set whose watched ports are up."""
        return action_set.without(self._down) if self._down else action_set

    def set_ports_down(self, down: frozenset[int]) -> None:
        """Exclude actions that watch one of these ports from groups and action sets."""
        self._down = down
        for group in self.groups.values():
            if any(weighted.watch_port is not None for weighted in group.members):
                self._choose(group)
        for observer in self.observers:
            observer.ports_changed()

    def insert_member(self, member_id: int, call: ActionCall) -> None:
        """Add a member; raise EntryError if it exists, is malformed, or does not fit."""
        self._check_call(call)
        if self._one_shots:
            raise self._error(EntryFault.INVALID, "its tables hold one-shot action sets, so it cannot have members")
        if member_id in self.members:
            raise self._error(EntryFault.EXISTS, f"member {member_id} already exists")
        if 0 < self.spec.size <= len(self.members):
            raise self._error(EntryFault.FULL, f"full: {self.spec.size} members")
        self._exchange_member(member_id, None, call)

    def modify_member(self, member_id: int, call: ActionCall) -> None:
        """Change a member's action, in every group that contains it."""
        self._check_member(member_id)
        self._check_call(call)
        self._exchange_member(member_id, self.members[member_id], call)

    def delete_member(self, member_id: int) -> None:
        """Remove a member that no group and no entry points to."""
        self._check_member(member_id)
        if self._member_uses[member_id]:
            raise self._error(EntryFault.IN_USE, f"member {member_id} is in use")
        self._exchange_member(member_id, self.members[member_id], None)

    def insert_group(self, group: Group) -> None:
        """Add a group; raise EntryError if it exists, names unknown members, or does not fit."""
        if not self.spec.selector:
            raise self._error(EntryFault.INVALID, "groups need an action selector")
        if group.group_id in self.groups:
            raise self._error(EntryFault.EXISTS, f"group {group.group_id} already exists")
        largest = self.spec.max_group_size
        if group.max_size < 0 or group.max_size > largest > 0:
            wanted = f"in 0..{largest}" if largest > 0 else "at least 0"
            raise self._error(EntryFault.INVALID, f"group {group.group_id}: max_size {group.max_size} is not {wanted}")
        self._put_group(group, None)

    def modify_group(self, group: Group) -> None:
        """Replace a group's members at once; its `max_size` cannot change."""
        present = self._present_group(group.group_id)
        if group.max_size != present.max_size:
            problem = f"group {group.group_id}: max_size is {present.max_size} for as long as the group exists"
            raise self._error(EntryFault.INVALID, problem)
        self._put_group(group, present)

    def delete_group(self, group_id: int) -> None:
        """Remove a group that no entry points to."""
        present = self._present_group(group_id)
        if self._group_uses[group_id]:
            raise self._error(EntryFault.IN_USE, f"group {group_id} is in use")
        self._exchange_group(group_id, present, None)

    def take(self, entry: TableEntry) -> None:
        """Record that a table entry points here; raise EntryError if its target does not exist or fit."""
        if entry.member is not None:
            self._check_member(entry.member)
            self._member_uses[entry.member] += 1
        elif entry.group is not None:
            if not self.spec.selector:
                raise self._error(EntryFault.INVALID, "groups need an action selector")
            self._present_group(entry.group)
            self._group_uses[entry.group] += 1
        elif entry.action_set is not None:
            self._check_action_set(entry.action_set)
            self._one_shots += 1
            self._weight += _weight(entry.action_set.actions)

    def release(self, entry: TableEntry) -> None:
        """Record that a table entry no longer points here."""
        if entry.member is not None:
            self._member_uses[entry.member] -= 1
        elif entry.group is not None:
            self._group_uses[entry.group] -= 1
        elif entry.action_set is not None:
            self._one_shots -= 1
            self._weight -= _weight(entry.action_set.actions)

    def _put_group(self, group: Group, present: Group | None) -> None:
        for weighted in group.members:
            self._check_member(weighted.member)
        if len({weighted.member for weighted in group.members}) != len(group.members):
            raise self._error(EntryFault.INVALID, f"group {group.group_id} has a member twice")
        where = f"group {group.group_id}"
        weight, limit = self._checked_weight(group.members, where), group.max_size or self.spec.max_group_size
        if 0 < limit < weight:
            raise self._error(EntryFault.FULL, f"{where}: the weights add up to more than max_size {limit}")
        self._check_room(weight - _weight(_members(present)), where)
        self._exchange_group(group.group_id, present, group)

    def _exchange_group(self, group_id: int, present: Group | None, group: Group | None) -> None:
        """Replace a group, with None for no group; if an observer refuses, everybody has the present one again."""
        try:
            self._set_group(group_id, present, group)
        except EntryError:
            self._set_group(group_id, group, present)
            raise

    def _set_group(self, group_id: int, present: Group | None, group: Group | None) -> None:
        old, new = _members(present), _members(group)
        self._weight += _weight(new) - _weight(old)
        self._member_uses.subtract(weighted.member for weighted in old)
        self._member_uses.update(weighted.member for weighted in new)
        if group is None:
            del self.groups[group_id], self._choices[group_id]
            self._group_changed(group_id)
        else:
            self.groups[group_id] = group
            self._choose(group)

    def _choose(self, group: Group) -> None:
        places = sorted(group.members, key=lambda weighted: weighted.member)
        usable = [
            weighted for weighted in places if weighted.watch_port is None or weighted.watch_port not in self._down
        ]
        choice = ActionSet(tuple(WeightedAction(self.members[weighted.member], weighted.weight) for weighted in usable))
        self._choices[group.group_id] = choice
        self._group_changed(group.group_id)

    def _group_changed(self, group_id: int) -> None:
        for observer in self.observers:
            observer.group_changed(group_id)

    def _exchange_member(self, member_id: int, present: ActionCall | None, call: ActionCall | None) -> None:
        """Replace a member, with None for no member; if an observer refuses, everybody has the present one again."""
        try:
            self._set_member(member_id, call)
        except EntryError:
            self._set_member(member_id, present)
            raise

    def _set_member(self, member_id: int, call: ActionCall | None) -> None:
        if call is None:
            del self.members[member_id]
        else:
            self.members[member_id] = call
        for observer in self.observers:
            observer.member_changed(member_id)
        for group in self.groups.values() if self._member_uses[member_id] else ():
            if any(weighted.member == member_id for weighted in group.members):
                self._choose(group)

    def _check_action_set(self, action_set: ActionSet) -> None:
        if not self.spec.selector:
            raise self._error(EntryFault.INVALID, "action sets need an action selector")
        if self.members or self.groups:
            raise self._error(EntryFault.INVALID, "it has members or groups, so its tables cannot hold action sets")
        for action in action_set.actions:
            self._check_call(action.call)
        weight = self._checked_weight(action_set.actions, "the action set")
        if 0 < self.spec.max_group_size < weight:
            problem = f"the action set's weights add up to {weight}, more than {self.spec.max_group_size}"
            raise self._error(EntryFault.INVALID, problem)
        self._check_room(weight, "the action set")

    def _checked_weight(self, places: Sequence[WeightedAction | GroupMember], where: str) -> int:
        for weighted in places:
            if not 1 <= weighted.weight <= MAX_WEIGHT:
                problem = f"{where}: a weight of {weighted.weight} is not in 1..{MAX_WEIGHT}"
                raise self._error(EntryFault.INVALID, problem)
        return _weight(places)

    def _check_room(self, more_weight: int, where: str) -> None:
        if 0 < self.spec.size < self._weight + more_weight and more_weight > 0:
            raise self._error(EntryFault.FULL, f"{where}: all weights would add up to more than size {self.spec.size}")

    def _check_member(self, member_id: int) -> None:
        if member_id not in self.members:
            raise self._error(EntryFault.NOT_FOUND, f"no member {member_id}")

    def _present_group(self, group_id: int) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise self._error(EntryFault.NOT_FOUND, f"no group {group_id}")
        return group

    def _error(self, fault: EntryFault, problem: str) -> EntryError:
        return EntryError(fault, problem, where=self.spec.name)


def _members(group: Group | None) -> tuple[GroupMember, ...]:
    return () if group is None else group.members


def _weight(places: Sequence[WeightedAction | GroupMember]) -> int:
    return sum(weighted.weight for weighted in places)
