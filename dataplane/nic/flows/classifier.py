"""The flow classifier: rules that Python changes while driver threads look frames up.

The native table is immutable and swapped as a whole; the previous one lives until no driver thread can read it.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from dataplane.errors import ClassifierError
from dataplane.native import array_at, kernel_library, u64
from dataplane.nic.epoch_reclamation import Epoch, EpochReclamation
from dataplane.nic.flows.calls import FlowCall, verdict_of
from dataplane.nic.flows.counters import HitCounters, RuleCount, read_hits
from dataplane.nic.flows.kernels.classifying import classify_one
from dataplane.nic.flows.patterns import pattern_of
from dataplane.nic.flows.rules import MOST_U32, Action, Call, Drop, FlowRule, FlowVerdict, ToConsumers
from dataplane.nic.flows.structures import Classifier, FlowLookup
from dataplane.nic.flows.table import FlowEntry, Group, Outcome, Table, make_entry
from dataplane.nic.structures import ActionKind

__all__ = ["FlowClassifier", "FlowVerdict", "RuleCount"]

DEFAULT = "default"
"""Name in messages of the rule that applies when none matches."""
_NOTHING = Outcome(ActionKind.DROP, 0, 0, 0, None)


@dataclass(slots=True)
class _Changes:
    """A batch's pending changes, and the state before them."""

    entries: dict[str, FlowEntry]
    members: dict[int, dict[int, FlowEntry]]
    default: Outcome
    masks: set[int] = field(default_factory=set)
    taken: list[int] = field(default_factory=list)
    """Counters for new rules."""
    freed: list[int] = field(default_factory=list)
    """Counters of rules being removed."""


@functools.cache
def _classify_one() -> Callable[..., None]:
    return kernel_library(classify_one).bind(classify_one)


class FlowClassifier:
    """Rules ordered by priority, then by age; any thread may change them.

    `find_group` returns the number of a group of consumers by its name, None if there is none. Frames that match no
    rule are dropped until `set_default` says otherwise. Driver threads use `native`: the classifier must outlive them.
    """

    def __init__(self, find_group: Callable[[str], int | None]) -> None:
        self._find_group = find_group
        self._lock = threading.RLock()
        self._native = Classifier()
        self._counters = HitCounters()
        self._reclamation = EpochReclamation()
        self._epochs: dict[int, Epoch] = {}
        """Driver threads' epochs by address."""
        self._entries: dict[str, FlowEntry] = {}
        self._members: dict[int, dict[int, FlowEntry]] = {}
        """Rules by mask, then by number."""
        self._names: dict[int, str] = {}
        self._default = _NOTHING
        self._last_number = 0
        self._changes: _Changes | None = None
        self._groups: dict[int, Group] = {}
        self._table = Table((), _NOTHING)
        self._swap(self._table)

    @property
    def native(self) -> Classifier:
        """Handle for kernels, constant for the classifier's lifetime."""
        return self._native

    @property
    def rules(self) -> tuple[FlowRule, ...]:
        """The rules, oldest first."""
        with self._lock:
            return tuple(entry.rule for entry in sorted(self._entries.values(), key=lambda entry: entry.number))

    def insert(self, rule: FlowRule) -> None:
        """Add a rule; raises ClassifierError if it is invalid or its name is taken."""
        pattern = pattern_of(rule)
        with self._changing() as changes:
            if rule.name in self._entries:
                raise ClassifierError("a rule of this name exists", rule=rule.name)
            if self._last_number == MOST_U32 - 1:
                raise ClassifierError("no rule numbers are left", rule=rule.name)
            outcome = self._outcome(rule, None, changes)
            self._last_number += 1
            self._add(make_entry(rule, self._last_number, outcome, pattern), changes)

    def replace(self, rule: FlowRule) -> None:
        """Replace the rule of the same name; the new rule takes over its age, number and count."""
        pattern = pattern_of(rule)
        with self._changing() as changes:
            before = self._entry(rule.name)
            outcome = self._outcome(rule, before.outcome, changes)
            entry = make_entry(rule, before.number, outcome, pattern)
            self._forget(before, changes)
            self._add(entry, changes)

    def remove(self, name: str) -> None:
        """Remove a rule and its count; raises ClassifierError if there is none of this name."""
        with self._changing() as changes:
            entry = self._entry(name)
            self._forget(entry, changes)
            _free(entry.outcome, changes)

    def set_default(self, action: Action, *, count: bool = False, mark: int = 0) -> None:
        """Set the action for frames that match no rule; counting restarts from 0 unless they were counted before."""
        rule = FlowRule(DEFAULT, {}, action, count=count, mark=mark)
        with self._changing() as changes:
            self._default = self._outcome(rule, self._default, changes)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Apply all changes inside at once, or none on an exception; changes of other threads wait."""
        with self._changing():
            yield

    def name_of(self, number: int) -> str | None:
        """Return the name of the rule with a number, as packets carry it; None: removed since, or 0."""
        return self._names.get(number)  # without the lock: consumers do not wait for a batch

    def read_counters(self) -> dict[str, RuleCount]:
        """Return the counts, by name, of rules that count or call a Python function; removed ones are gone."""
        with self._lock:
            return {
                name: _count(entry.outcome)
                for name, entry in self._entries.items()
                if entry.outcome.counter or (entry.outcome.call is not None and entry.outcome.call.is_python)
            }

    @property
    def default_count(self) -> RuleCount:
        """Frames that matched no rule since they have been counted."""
        with self._lock:
            return _count(self._default)

    def classify(self, frame: bytes, queue: int = 0) -> FlowVerdict:
        """Return the verdict on a frame, which counts."""
        lookup = FlowLookup()
        with self._lock:  # no table is freed
            _classify_one()(self._native, frame, len(frame), queue, lookup)
        return verdict_of(lookup.verdict[0])

    def register_driver(self, epoch_address: int) -> None:
        """Keep tables alive for a thread whose epoch (u64) is at an address; call before the thread begins."""
        cell = ctypes.c_uint64.from_address(epoch_address)
        with self._lock:
            self._epochs[epoch_address] = lambda: cell.value
            self._reclamation.follow(list(self._epochs.values()))

    def unregister_driver(self, epoch_address: int) -> None:
        """Forget a driver thread that has ended."""
        with self._lock:
            self._epochs.pop(epoch_address, None)
            self._reclamation.follow(list(self._epochs.values()))
            self._reclamation.collect()

    @contextmanager
    def _changing(self) -> Iterator[_Changes]:
        """Collect changes; the outermost of these publishes them."""
        with self._lock:
            if self._changes is not None:
                yield self._changes
                return
            members = {mask: dict(rules) for mask, rules in self._members.items()}
            self._changes = _Changes(dict(self._entries), members, self._default)
            try:
                yield self._changes
                self._publish(self._changes)
            except BaseException:
                self._undo(self._changes)
                raise
            finally:
                self._changes = None

    def _entry(self, name: str) -> FlowEntry:
        entry = self._entries.get(name)
        if entry is None:
            raise ClassifierError("there is no rule of this name", rule=name)
        return entry

    def _add(self, entry: FlowEntry, changes: _Changes) -> None:
        self._entries[entry.rule.name] = entry
        self._names[entry.number] = entry.rule.name
        self._members.setdefault(entry.mask, {})[entry.number] = entry
        changes.masks.add(entry.mask)

    def _forget(self, entry: FlowEntry, changes: _Changes) -> None:
        del self._entries[entry.rule.name]
        del self._names[entry.number]
        del self._members[entry.mask][entry.number]
        changes.masks.add(entry.mask)

    def _outcome(self, rule: FlowRule, before: Outcome | None, changes: _Changes) -> Outcome:
        """Return the outcome of a rule's frames; existing counts continue."""
        kind, group, call = ActionKind.DROP, 0, None
        match rule.action:
            case ToConsumers(name):
                number = self._find_group(name)
                if number is None:
                    raise ClassifierError(f"there is no group {name} of consumers", rule=rule.name)
                kind, group = ActionKind.HAND_OUT, number
            case Call():
                failures = before.call.failures if before is not None and before.call is not None else 0
                kind, call = ActionKind.CALL, FlowCall(rule.name, rule.action, failures)
            case Drop():
                pass
            case _:
                raise ClassifierError(f"{rule.action!r} is not an action", rule=rule.name)
        counter = before.counter if before is not None else 0
        if rule.count and not counter:
            counter = self._counters.take()
            changes.taken.append(counter)
        elif not rule.count and before is not None:
            _free(before, changes)
            counter = 0
        return Outcome(kind, group, rule.mark, counter, call)

    def _publish(self, changes: _Changes) -> None:
        """Build what has changed, publish it to driver threads, and keep the previous tables for as long as needed."""
        if not changes.masks and self._default is changes.default:
            return
        groups = dict(self._groups)
        for mask in changes.masks:
            members = self._members[mask]
            groups.pop(mask, None)
            if members:
                groups[mask] = Group(mask, members.values())
            else:
                del self._members[mask]
        table = Table(groups.values(), self._default)
        before, self._table, self._groups = self._table, table, groups
        self._swap(table)
        self._reclamation.when_unused(functools.partial(self._let_go, before, changes.freed))
        self._reclamation.collect()

    def _swap(self, table: Table) -> None:
        self._reclamation.publish(array_at(u64, self._native.address), table.address)

    def _let_go(self, table: Table, counters: list[int]) -> None:
        """Drop a table whose last reader is gone, and reuse counters of rules that went with it."""
        del table
        self._counters.give_back(counters)

    def _undo(self, changes: _Changes) -> None:
        self._entries, self._members, self._default = changes.entries, changes.members, changes.default
        self._names = {entry.number: name for name, entry in self._entries.items()}
        self._counters.give_back(changes.taken)


def _free(outcome: Outcome, changes: _Changes) -> None:
    """Release a counter for reuse once no thread can add to it."""
    if outcome.counter:
        changes.freed.append(outcome.counter)


def _count(outcome: Outcome) -> RuleCount:
    failures = outcome.call.failures if outcome.call is not None else 0
    return read_hits(outcome.counter, failures) if outcome.counter else RuleCount(0, 0, failures)
