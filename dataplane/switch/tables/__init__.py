"""Objects that a program looks up: tables, profiles, counters, registers, meters, value sets, groups and sessions."""

from dataplane.switch.tables.arrays import CounterArray, RegisterCells, WideCells, register_cells
from dataplane.switch.tables.carry import carry_over
from dataplane.switch.tables.entry import ActionSet, TableEntry, Tally, WeightedAction
from dataplane.switch.tables.meters import GREEN, RED, YELLOW, MeterArray, MeterCell, MeterConfig
from dataplane.switch.tables.profile import Group, GroupMember, Profile, ProfileObserver
from dataplane.switch.tables.replication import CloneSession, ObservedDict, Replica
from dataplane.switch.tables.state import ForwardingState, ProgramObjects
from dataplane.switch.tables.table import Table, TableObserver
from dataplane.switch.tables.value_set import ValueSet

__all__ = [
    "GREEN",
    "RED",
    "YELLOW",
    "ActionSet",
    "CloneSession",
    "CounterArray",
    "ForwardingState",
    "Group",
    "GroupMember",
    "MeterArray",
    "MeterCell",
    "MeterConfig",
    "ObservedDict",
    "Profile",
    "ProfileObserver",
    "ProgramObjects",
    "RegisterCells",
    "Replica",
    "Table",
    "TableEntry",
    "TableObserver",
    "Tally",
    "ValueSet",
    "WeightedAction",
    "WideCells",
    "carry_over",
    "register_cells",
]
