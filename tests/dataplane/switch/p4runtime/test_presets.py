"""Entries that come with a program, where p4c's entries file was read: const ones stay, the others are a client's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finsy.proto import p4r

from dataplane.program.loader import load_program
from dataplane.switch.p4runtime import Code, P4RuntimeCore
from tests.dataplane.switch.p4runtime.conftest import PROGRAMS, FakeSwitch, Shell, push, read_config

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
Request = p4r.SetForwardingPipelineConfigRequest
JSON, P4INFO, ENTRIES = (PROGRAMS / f"presets.{ending}" for ending in ("json", "p4info.txtpb", "entries.txtpb"))


@pytest.fixture
def presets(switch: FakeSwitch) -> Iterator[Shell]:
    """A primary on a switch that was started with all three files."""
    program = load_program(JSON, P4INFO, entries=ENTRIES)
    switch.commit(program)
    shell = Shell(P4RuntimeCore(switch), program.p4info)
    yield shell
    shell.session.close()


def of(shell: Shell, table: str) -> list[p4r.TableEntry]:
    return [entity.table_entry for entity in shell.read(shell.entry(table))]


def writable(entry: p4r.TableEntry, action: p4r.Action | None = None) -> p4r.Entity:
    """Return an entry that was read as a client would write it, with another action if one is given."""
    entity = p4r.Entity(table_entry=entry)
    entity.table_entry.is_const = False
    if action is not None:
        entity.table_entry.action.action.CopyFrom(action)
    return entity


def test_what_is_read_says_const_and_the_declared_priority(presets: Shell) -> None:
    def entries_of(table: str) -> list[tuple[int, bool]]:
        return sorted(((entry.priority, entry.is_const) for entry in of(presets, table)), reverse=True)

    assert entries_of("ranked") == [(50, False), (10, True), (9, False), (1, True)]
    assert entries_of("fixed_ternary") == [(3, True), (2, True), (1, True)]
    assert entries_of("open") == [(0, True), (0, False)]
    assert entries_of("routes") == [(0, True), (0, False), (0, False)]
    assert entries_of("unreached") == [(0, True), (0, False)]
    by_priority = presets.entry("ranked", priority=10)
    assert [entity.table_entry.is_const for entity in presets.read(by_priority)] == [True]


@pytest.mark.parametrize("table", ["fixed", "fixed_ternary", "open", "ranked", "smallest_wins", "routes", "unreached"])
def test_const_entries_are_neither_changed_nor_deleted(presets: Shell, table: str) -> None:
    before = of(presets, table)
    for const in [entry for entry in before if entry.is_const]:
        as_read = p4r.Entity(table_entry=const)
        for kind in (INSERT, MODIFY, DELETE):
            assert presets.refusal(kind, as_read) is Code.INVALID_ARGUMENT  # is_const may not be written
        for kind in (MODIFY, DELETE):
            assert presets.refusal(kind, writable(const)) is Code.PERMISSION_DENIED
            assert presets.refusal(kind, writable(const, presets.action("drop"))) is Code.PERMISSION_DENIED
    assert of(presets, table) == before


def test_of_const_entries_counters_may_be_written(presets: Shell) -> None:
    for table in ("fixed", "open"):
        const = next(entry for entry in of(presets, table) if entry.is_const)
        change = p4r.Entity(table_entry=p4r.TableEntry(table_id=const.table_id, match=const.match))
        change.table_entry.counter_data.packet_count = 7
        presets.modify(change)
        (read,) = presets.read(change)
        assert (read.table_entry.counter_data.packet_count, read.table_entry.is_const) == (7, True)


@pytest.mark.parametrize("table", ["open", "ranked", "smallest_wins", "routes", "unreached"])
def test_others_are_modified_deleted_and_inserted_again(presets: Shell, table: str) -> None:
    own = next(entry for entry in of(presets, table) if not entry.is_const)
    presets.modify(writable(own, presets.action("drop")))
    presets.delete(writable(own))
    assert own not in of(presets, table)
    presets.insert(writable(own))
    assert own in of(presets, table)


def test_a_table_with_entries_takes_more_and_a_const_table_none(presets: Shell) -> None:
    first, second = of(presets, "open")
    assert presets.refusal(INSERT, writable(first)) is Code.ALREADY_EXISTS
    second.match[0].exact.value = b"\x07"
    presets.insert(writable(second))
    assert len(of(presets, "open")) == 3
    other = of(presets, "fixed")[0]
    other.match[0].exact.value = b"\x07"
    assert presets.refusal(INSERT, writable(other)) is Code.PERMISSION_DENIED


def test_a_push_of_the_same_program_keeps_what_the_file_said(presets: Shell, switch: FakeSwitch) -> None:
    const, own = of(presets, "open")
    presets.modify(writable(own, presets.action("drop")))
    installs = switch.installs
    presets.core.set_pipeline(push(read_config("presets"), Request.RECONCILE_AND_COMMIT))
    assert switch.installs == installs  # it is the program that runs
    assert [entry.is_const for entry in of(presets, "open")] == [True, False]
    presets.core.set_pipeline(push(read_config("p4rt_entities"), Request.VERIFY_AND_COMMIT))
    presets.core.set_pipeline(push(read_config("presets"), Request.VERIFY_AND_COMMIT))
    assert of(presets, "open") == [const, own]


def test_reconciling_with_a_changed_program_keeps_every_entry(presets: Shell) -> None:
    before = {table: of(presets, table) for table in ("open", "ranked", "routes", "fixed")}
    presets.delete(writable(before["routes"][1]))
    changed = read_config("presets")
    changed.p4_device_config += b"\n"  # nothing marks this one's const entries
    presets.core.set_pipeline(push(changed, Request.RECONCILE_AND_COMMIT))
    for table in ("open", "ranked"):
        kept = [p4r.Entity(table_entry=entry) for entry in of(presets, table)]
        assert kept == [writable(entry) for entry in before[table]]
    assert of(presets, "routes") == [writable(before["routes"][at]).table_entry for at in (0, 2)]
    assert of(presets, "fixed") == before["fixed"]


def test_without_the_file_the_p4info_says_which_tables_are_const(switch: FakeSwitch) -> None:
    program = load_program(JSON, P4INFO)
    switch.commit(program)
    shell = Shell(P4RuntimeCore(switch), program.p4info)
    assert [entry.is_const for entry in of(shell, "fixed")] == [True, True]
    const = of(shell, "open")[0]
    assert not const.is_const
    shell.delete(p4r.Entity(table_entry=const))
    shell.session.close()
