"""What a switch's program looks up: tables, action profiles, counters, registers, groups and clone sessions."""

from dataplane.switch.tables.carry import carry_over
from dataplane.switch.tables.entry import ActionSet, TableEntry, Tally, WeightedAction
from dataplane.switch.tables.profile import Group, GroupMember, Profile
from dataplane.switch.tables.state import CloneSession, CounterArray, ForwardingState, ProgramObjects, Replica
from dataplane.switch.tables.table import Table

__all__ = [
    "ActionSet",
    "CloneSession",
    "CounterArray",
    "ForwardingState",
    "Group",
    "GroupMember",
    "Profile",
    "ProgramObjects",
    "Replica",
    "Table",
    "TableEntry",
    "Tally",
    "WeightedAction",
    "carry_over",
]
