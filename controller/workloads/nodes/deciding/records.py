"""Memory of containers between polls, and its effect on their next start; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from controller.workloads.nodes.deciding.values import NO_RECORD, Actual, Record, Terms
from controller.workloads.nodes.runtimes.base import ContainerPhase

Key = tuple[str, int, str]
"""Key of a container: its pod's uid and epoch, and its name."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Times from which a container is known to run, and to have ended."""

    running_ns: int | None = None
    ended_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Records by container, and the observations of each existing one, by its id; a new value after each poll."""

    records: Mapping[Key, Record]
    seen: Mapping[str, Seen]

    def of(self, uid: str, epoch: int) -> dict[str, Record]:
        """Return the records of a pod's containers."""
        return {key[2]: record for key, record in self.records.items() if key[:2] == (uid, epoch)}

    def with_record(self, key: Key, record: Record) -> Memory:
        """Return a copy with one record changed."""
        return replace(self, records={**self.records, key: record})

    def record(self, key: Key) -> Record:
        """Return a container's record."""
        return self.records.get(key, NO_RECORD)

    def only(self, pods: Mapping[str, int]) -> Memory:
        """Return a copy with only the records of these pods, by uid with their epochs."""
        kept = {key: record for key, record in self.records.items() if pods.get(key[0]) == key[1]}
        return self if len(kept) == len(self.records) else replace(self, records=kept)


NOTHING = Memory({}, {})


def observe(memory: Memory, actual: Sequence[Actual], now_ns: int, terms: Terms, *, fenced: Set[str]) -> Memory:
    """Return the memory after a poll; `fenced` are the ids of containers that the lease ended."""
    records, seen = dict(memory.records), dict[str, Seen]()
    for container in actual:
        before = memory.seen.get(container.id, Seen())
        now = _seen(before, container, now_ns)
        seen[container.id] = now
        if now.ended_ns is not None and before.ended_ns is None:
            key = (container.uid, container.epoch, container.container)
            records[key] = _after_end(
                records.get(key, NO_RECORD), container, now, terms, is_fenced=container.id in fenced
            )
    return Memory(records, seen)


def after_failure(record: Record, problem: str, now_ns: int, terms: Terms) -> Record:
    """Return the record of a container that failed to start."""
    failures = record.failures + 1
    return replace(
        record, failures=failures, not_before_ns=now_ns + terms.wait_ns(failures), problem=problem, is_fenced=False
    )


def after_start(record: Record, start_ns: int) -> Record:
    """Return the record of a started container; its start took `start_ns`."""
    return replace(record, problem="", is_fenced=False, start_ns=start_ns)


def _seen(before: Seen, container: Actual, now_ns: int) -> Seen:
    if container.runs:
        return before if before.running_ns is not None else Seen(running_ns=now_ns)
    if container.phase is ContainerPhase.EXITED and before.ended_ns is None:
        return replace(before, ended_ns=now_ns)
    return before


def _after_end(record: Record, container: Actual, seen: Seen, terms: Terms, *, is_fenced: bool) -> Record:
    """Return the record of an ended container: the time until its next start."""
    assert seen.ended_ns is not None
    # A container never seen running ran before this manager, or only briefly: the runtime's times decide.
    state = container.state
    ran_ns = 0
    if seen.running_ns is not None:
        ran_ns = seen.ended_ns - seen.running_ns
    elif state.started_ns is not None and state.finished_ns is not None:
        ran_ns = state.finished_ns - state.started_ns
    failures = 1 if ran_ns >= terms.young_ns else record.failures + 1
    wait_ns = 0 if is_fenced else terms.wait_ns(failures)
    return replace(
        record,
        failures=0 if is_fenced else failures,
        not_before_ns=seen.ended_ns + wait_ns,
        attempt=max(record.attempt, container.attempt) + 1,
        is_fenced=is_fenced,
    )
