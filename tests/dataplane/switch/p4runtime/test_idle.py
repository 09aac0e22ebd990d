"""Idle timeouts: entries that no packet hits are reported, again and again (sections 9.1.8 and 15.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.p4runtime import Code
from dataplane.switch.p4runtime import idle as idle_module
from dataplane.switch.p4runtime.idle import SHORTEST_NS, IdleWatch
from dataplane.switch.tables import ForwardingState, TableEntry

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY = p4r.Update.INSERT, p4r.Update.MODIFY
MS = 1_000_000
TABLE = "EntitiesIngress.aging_table"


def aging(shell: Shell, source: int = 1, **fields: Any) -> p4r.Entity:
    match = [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([source])))]
    return shell.entry("aging_table", match, action=shell.action("NoAction"), **fields)


def notes(shell: Shell) -> list[p4r.IdleTimeoutNotification]:
    kind = "idle_timeout_notification"
    notifications = [item.idle_timeout_notification for item in shell.received if item.WhichOneof("update") == kind]
    shell.received.clear()
    return notifications


def hit(switch: FakeSwitch, source: int, now_ns: int) -> None:
    assert switch.state is not None
    entry = switch.state.tables[TABLE].lookup((source,))
    assert entry is not None
    entry.touch(now_ns // 1_000)


def test_an_idle_entry_is_reported_again_and_again(shell: Shell, switch: FakeSwitch) -> None:
    switch.time_ns = 3 * MS
    shell.insert(aging(shell, idle_timeout_ns=10 * MS, metadata=b"m", controller_metadata=4), aging(shell, 2))
    assert shell.core.tick(12 * MS) == 13 * MS
    assert notes(shell) == []
    switch.time_ns = 13 * MS
    assert shell.core.tick(13 * MS) == 23 * MS
    (note,) = notes(shell)
    (entry,) = note.table_entry
    wanted = aging(shell, idle_timeout_ns=10 * MS, metadata=b"m", controller_metadata=4).table_entry
    wanted.ClearField("action")
    assert entry == wanted
    assert note.timestamp == 13 * MS
    assert shell.core.tick(22 * MS) == 23 * MS
    assert notes(shell) == []
    shell.core.tick(23 * MS)
    assert len(notes(shell)) == 1


def test_a_hit_puts_it_off(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(aging(shell, idle_timeout_ns=10 * MS))
    hit(switch, 1, 4 * MS)
    assert shell.core.tick(10 * MS) == 14 * MS
    assert notes(shell) == []
    shell.core.tick(14 * MS)
    assert len(notes(shell)) == 1


def test_entries_that_are_due_together_are_told_together(
    shell: Shell, switch: FakeSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.insert(*(aging(shell, source, idle_timeout_ns=10 * MS) for source in range(1, 6)))
    shell.core.tick(20 * MS)
    assert [len(note.table_entry) for note in notes(shell)] == [5]
    monkeypatch.setattr(idle_module, "REPORT_ENTRIES", 2)
    assert shell.core.tick(40 * MS) == 30 * MS
    assert shell.core.tick(40 * MS) == 30 * MS
    assert shell.core.tick(40 * MS) == 50 * MS
    assert [len(note.table_entry) for note in notes(shell)] == [2, 2, 1]


def test_changed_and_deleted_entries(shell: Shell, switch: FakeSwitch) -> None:
    shell.insert(aging(shell, 1, idle_timeout_ns=10 * MS), aging(shell, 2, idle_timeout_ns=10 * MS))
    wakes: list[int] = []
    shell.core.on_due(lambda: wakes.append(1))
    assert shell.core.tick(0) == 10 * MS
    shell.modify(aging(shell, 1, idle_timeout_ns=5 * MS))
    assert wakes == [1]
    shell.delete(aging(shell, 2))
    assert shell.core.tick(5 * MS) == 10 * MS
    assert len(notes(shell)) == 1
    shell.modify(aging(shell, 1))
    assert shell.core.tick(20 * MS) is None
    assert notes(shell) == []


def test_too_short_timeout_is_raised_but_read_back_as_written(shell: Shell) -> None:
    entity = aging(shell, idle_timeout_ns=1)
    shell.insert(entity)
    assert shell.read(shell.entry("aging_table")) == [entity]
    assert shell.core.tick(0) == SHORTEST_NS


def test_only_the_primary_is_told(shell: Shell) -> None:
    shell.insert(aging(shell, idle_timeout_ns=MS))
    backup: list[p4r.StreamMessageResponse] = []
    shell.connect(0, backup)
    shell.core.tick(MS)
    assert len(notes(shell)) == 1
    assert len(backup) == 1
    shell.session.close()
    shell.core.tick(9 * MS)
    assert notes(shell) == []


def test_the_time_since_the_last_hit_is_read(shell: Shell, switch: FakeSwitch) -> None:
    switch.time_ns = 5 * MS
    shell.insert(aging(shell))
    switch.time_ns = 8 * MS
    asked = shell.entry("aging_table", time_since_last_hit=p4r.TableEntry.IdleTimeout())
    (entity,) = shell.read(asked)
    assert entity.table_entry.time_since_last_hit.elapsed_ns == 3 * MS
    hit(switch, 1, 7 * MS)
    (entity,) = shell.read(asked)
    assert entity.table_entry.time_since_last_hit.elapsed_ns == MS
    (entity,) = shell.read(shell.entry("aging_table"))
    assert not entity.table_entry.HasField("time_since_last_hit")
    everywhere = p4r.Entity(table_entry=p4r.TableEntry(time_since_last_hit=p4r.TableEntry.IdleTimeout()))
    shown = [item.table_entry for item in shell.read(everywhere) if item.table_entry.HasField("time_since_last_hit")]
    assert [item.table_id for item in shown] == [shell.id("tables", "aging_table")]


def test_refused_times(shell: Shell) -> None:
    asked = p4r.TableEntry.IdleTimeout(elapsed_ns=1)
    default = shell.entry("aging_table", is_default_action=True, idle_timeout_ns=1)
    for kind, entity in (
        (INSERT, aging(shell, idle_timeout_ns=-1)),
        (INSERT, aging(shell, time_since_last_hit=asked)),
        (MODIFY, default),
        (INSERT, shell.entry("keyless", is_default_action=True, time_since_last_hit=asked)),
    ):
        assert shell.refusal(kind, entity) is Code.INVALID_ARGUMENT
    assert shell.read_refusal(shell.entry("lpm_table", time_since_last_hit=asked)) is Code.INVALID_ARGUMENT


STEPS = st.lists(
    st.tuples(
        st.integers(0, 4), st.integers(1, 3), st.integers(0, 5), st.sampled_from(["put", "hit", "delete", "wait"])
    ),
    max_size=40,
)


@settings(deadline=None)
@given(STEPS)
def test_alarms_agree_with_looking_at_every_entry(program: Program, steps: list[tuple[int, int, int, str]]) -> None:
    state, watch, now = ForwardingState(program), IdleWatch(), 0
    table = state.tables[TABLE]
    since: dict[int, int] = {}  # key -> last hit or report, in ms
    lives: dict[int, int] = {}
    for gap, key, life, step in steps:
        now += gap
        present = table.get((key,))
        if step == "put" and present is None:
            entry = TableEntry((key,), call=ActionCall("NoAction"), idle_timeout_ns=life * MS)
            entry.touch(now * 1_000)
            table.insert(entry)
            watch.watch(TABLE, entry)
            since[key], lives[key] = now, life
        elif step == "hit" and present is not None:
            present.touch(now * 1_000)
            since[key] = now
        elif step == "delete" and present is not None:
            table.delete((key,))
            del lives[key]
        due = {entry.match[0] for _, entry in watch.due(state, now * MS)}
        assert due == {key for key, life in lives.items() if life and now - since[key] >= life}
        since.update((key, now) for key in lives if key in due)
