"""TableEntry: every match kind, every rule of section 9.1 that has a code of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from finsy.proto import p4r

from dataplane.switch.p4runtime import Code, P4RuntimeError

if TYPE_CHECKING:
    from tests.dataplane.switch.p4runtime.conftest import FakeSwitch, Shell

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
MAC = b"\x0a\x00\x00\x00\x00\x01"


def exact(field_id: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=value))


def lpm(field_id: int, value: bytes, length: int) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, lpm=p4r.FieldMatch.LPM(value=value, prefix_len=length))


def ternary(field_id: int, value: bytes, mask: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, ternary=p4r.FieldMatch.Ternary(value=value, mask=mask))


def between(field_id: int, low: bytes, high: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, range=p4r.FieldMatch.Range(low=low, high=high))


def optional(field_id: int, value: bytes) -> p4r.FieldMatch:
    return p4r.FieldMatch(field_id=field_id, optional=p4r.FieldMatch.Optional(value=value))


EXACT = (exact(1, MAC), exact(2, b"\x01"))
MIXED = (
    ternary(1, b"\x0a\x00\x00\x00\x00\x00", b"\xff\x00\x00\x00\x00\x00"),
    between(2, b"\x01", b"\x08\x00"),
    optional(3, b"\x05"),
    lpm(4, b"\x0b\x00\x00\x00\x00\x00", 8),
    exact(5, b"\x00"),
)


def lpm_match(length: int) -> tuple[p4r.FieldMatch, ...]:
    return (exact(1, b"\x01"), lpm(2, b"\x0a\x00\x00\x00\x00\x00", length))


def test_every_kind_of_match_reads_back_as_written(shell: Shell, switch: FakeSwitch) -> None:
    entity = shell.entry("mixed_table", MIXED, priority=9, action=shell.action("forward", b"\x03"), metadata=b"cookie")
    shell.insert(entity)
    assert shell.read(shell.entry("mixed_table")) == [entity]
    assert switch.state is not None
    table = switch.state.tables["EntitiesIngress.mixed_table"]
    hit = table.lookup((0x0A0000000009, 0x0800, 5, 0x0B1111111111, 0))
    assert hit is not None
    assert hit.call is not None
    assert hit.call.arguments == (3,)
    assert table.lookup((0x0A0000000009, 0x0801, 5, 0x0B1111111111, 0)) is None


def test_fields_that_match_anything_are_left_out(shell: Shell) -> None:
    entity = shell.entry("mixed_table", [exact(5, b"\x07")], priority=1, action=shell.action("drop"))
    shell.insert(entity)
    assert shell.read(shell.entry("mixed_table")) == [entity]


def test_a_padded_value_reads_back_in_its_shortest_form(shell: Shell) -> None:
    shell.insert(
        shell.entry(
            "exact_table",
            [exact(1, bytes(4) + MAC), exact(2, b"\x00\x01")],
            action=shell.action("forward", b"\x00\x00\x02"),
        )
    )
    (entity,) = shell.read(shell.entry("exact_table"))
    assert entity == shell.entry("exact_table", EXACT, action=shell.action("forward", b"\x02"))


@pytest.mark.parametrize(
    ("match", "code"),
    [
        ([exact(5, b"\x01"), exact(9, b"\x01")], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), exact(5, b"\x01")], Code.INVALID_ARGUMENT),
        ([], Code.INVALID_ARGUMENT),
        ([optional(5, b"\x01")], Code.INVALID_ARGUMENT),
        ([p4r.FieldMatch(field_id=5)], Code.INVALID_ARGUMENT),
        ([exact(5, b"")], Code.OUT_OF_RANGE),
        ([exact(5, b"\x01\x00\x00")], Code.OUT_OF_RANGE),
        ([exact(5, b"\x01"), ternary(1, b"\x00", b"\x00")], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), ternary(1, b"\x03", b"\x01")], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), ternary(1, b"", b"\x01")], Code.OUT_OF_RANGE),
        ([exact(5, b"\x01"), between(2, b"\x02", b"\x01")], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), between(2, b"\x00", b"\xff\xff")], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), optional(3, b"\x02\x00")], Code.OUT_OF_RANGE),
        ([exact(5, b"\x01"), lpm(4, b"\x01", 0)], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), lpm(4, b"\x01", 49)], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), lpm(4, b"\x01", -1)], Code.INVALID_ARGUMENT),
        ([exact(5, b"\x01"), lpm(4, b"\x01", 47)], Code.INVALID_ARGUMENT),
    ],
)
def test_malformed_matches(shell: Shell, match: list[p4r.FieldMatch], code: Code) -> None:
    for kind in (INSERT, MODIFY, DELETE):
        entity = shell.entry("mixed_table", match, priority=1, action=shell.action("drop"))
        assert shell.refusal(kind, entity) is code
    assert not shell.read(shell.entry("mixed_table"))


def test_malformed_actions(shell: Shell) -> None:
    good = shell.action("forward", b"\x01")
    for action in (
        p4r.Action(),
        p4r.Action(action_id=12345),
        shell.action("NoAction"),
        shell.action("forward"),
        shell.action("forward", b"\x01", b"\x02"),
        p4r.Action(action_id=good.action_id, params=[*good.params, *good.params]),
        p4r.Action(action_id=good.action_id, params=[p4r.Action.Param(param_id=2, value=b"\x01")]),
    ):
        assert shell.refusal(INSERT, shell.entry("exact_table", EXACT, action=action)) is Code.INVALID_ARGUMENT
    wide = shell.action("forward", b"\x02\x00")
    assert shell.refusal(INSERT, shell.entry("exact_table", EXACT, action=wide)) is Code.OUT_OF_RANGE
    assert shell.refusal(INSERT, shell.entry("exact_table", EXACT)) is Code.INVALID_ARGUMENT
    assert shell.refusal(INSERT, shell.entry("exact_table", EXACT, member=1)) is Code.INVALID_ARGUMENT
    assert not shell.read(shell.entry("exact_table"))


def test_priority_is_required_or_forbidden(shell: Shell) -> None:
    for kind in (INSERT, MODIFY, DELETE):
        drop = shell.action("drop")
        for priority in (0, -1):
            entity = shell.entry("mixed_table", MIXED, priority=priority, action=drop)
            assert shell.refusal(kind, entity) is Code.INVALID_ARGUMENT
        entity = shell.entry("lpm_table", lpm_match(8), priority=1, action=drop)
        assert shell.refusal(kind, entity) is Code.INVALID_ARGUMENT


def test_insert_modify_delete(shell: Shell) -> None:
    first = shell.entry("lpm_table", lpm_match(8), action=shell.action("forward", b"\x01"))
    second = shell.entry("lpm_table", lpm_match(8), action=shell.action("forward", b"\x02"), controller_metadata=5)
    key = shell.entry("lpm_table", lpm_match(8))
    assert shell.refusal(MODIFY, first) is Code.NOT_FOUND
    assert shell.refusal(DELETE, first) is Code.NOT_FOUND
    shell.insert(first)
    assert shell.refusal(INSERT, second) is Code.ALREADY_EXISTS
    shell.modify(second)
    assert shell.read(key) == [second]
    shell.modify(key)  # without an action the action stays; metadata are a full snapshot
    assert shell.read(key) == [shell.entry("lpm_table", lpm_match(8), action=shell.action("forward", b"\x02"))]
    nonsense = shell.entry("lpm_table", lpm_match(8), action=p4r.Action(action_id=1), metadata=b"?")
    shell.delete(nonsense)
    assert not shell.read(key)


def test_capacity(shell: Shell) -> None:
    entities = [
        shell.entry(
            "exact_table", [exact(1, bytes([value])), exact(2, b"\x01")], action=shell.action("forward", b"\x01")
        )
        for value in range(5)
    ]
    shell.insert(*entities[:4])
    assert shell.refusal(INSERT, entities[4]) is Code.RESOURCE_EXHAUSTED
    assert shell.read(shell.entry("exact_table")) == entities[:4]


def test_ids_of_tables(shell: Shell) -> None:
    for table_id, code in ((0, Code.INVALID_ARGUMENT), (77, Code.NOT_FOUND)):
        entity = p4r.Entity(table_entry=p4r.TableEntry(table_id=table_id))
        assert shell.refusal(INSERT, entity) is code
    assert shell.read_refusal(p4r.Entity(table_entry=p4r.TableEntry(table_id=77))) is Code.NOT_FOUND


def test_scopes_of_actions(shell: Shell) -> None:
    assert (
        shell.refusal(INSERT, shell.entry("exact_table", EXACT, action=shell.action("drop"))) is Code.PERMISSION_DENIED
    )
    default = shell.entry("exact_table", is_default_action=True, action=shell.action("set_class", b"\x01"))
    assert shell.refusal(MODIFY, default) is Code.PERMISSION_DENIED


def test_const_entries(shell: Shell) -> None:
    first, second, third = shell.read(shell.entry("const_table"))
    assert first == shell.entry(
        "const_table",
        [ternary(1, b"\x08\x00", b"\xff\xff")],
        priority=3,
        is_const=True,
        action=shell.action("set_class", b"\x04"),
    )
    assert second.table_entry.priority == 2
    assert not third.table_entry.match
    entity = p4r.Entity()
    entity.CopyFrom(first)
    for kind in (INSERT, MODIFY, DELETE):
        assert shell.refusal(kind, entity) is Code.INVALID_ARGUMENT  # is_const may not be written
    entity.table_entry.is_const = False
    for kind in (INSERT, MODIFY, DELETE):
        assert shell.refusal(kind, entity) is Code.PERMISSION_DENIED
    other = shell.entry("const_table", [ternary(1, b"\x01", b"\x01")], priority=9, action=shell.action("NoAction"))
    assert shell.refusal(DELETE, other) is Code.PERMISSION_DENIED
    assert len(shell.read(shell.entry("const_table"))) == 3


def test_default_entries(shell: Shell) -> None:
    def default(table: str = "keyless", **fields: Any) -> p4r.Entity:
        return shell.entry(table, is_default_action=True, **fields)

    assert shell.read(default()) == [default(action=shell.action("drop"))]
    shell.modify(default(action=shell.action("forward", b"\x04"), metadata=b"mine"))
    assert shell.read(default()) == [default(action=shell.action("forward", b"\x04"), metadata=b"mine")]
    assert not shell.read(default(metadata=b"yours"))
    assert not shell.read(default(action=shell.action("drop")))
    assert not shell.read(shell.entry("keyless"))
    for kind in (INSERT, DELETE):
        assert shell.refusal(kind, default(action=shell.action("drop"))) is Code.INVALID_ARGUMENT
    assert shell.refusal(MODIFY, default(priority=1)) is Code.INVALID_ARGUMENT
    assert shell.refusal(MODIFY, default(idle_timeout_ns=1)) is Code.INVALID_ARGUMENT
    assert shell.refusal(MODIFY, default("lpm_table", action=shell.action("drop"))) is Code.PERMISSION_DENIED
    assert shell.refusal(MODIFY, default("selector_table", action=shell.action("drop"))) is Code.PERMISSION_DENIED
    shell.modify(default())
    assert shell.read(default()) == [default(action=shell.action("drop"))]
    assert len(shell.read(p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)))) == 9


def test_a_keyless_table_has_no_entries(shell: Shell) -> None:
    assert shell.refusal(INSERT, shell.entry("keyless", action=shell.action("drop"))) is Code.INVALID_ARGUMENT


def test_idle_timeouts_and_meters_that_a_table_does_not_have(shell: Shell) -> None:
    action = shell.action("drop")
    assert shell.refusal(INSERT, shell.entry("lpm_table", lpm_match(8), action=action, idle_timeout_ns=5)) is (
        Code.INVALID_ARGUMENT
    )
    entity = shell.entry("lpm_table", lpm_match(8), action=action, meter_config=p4r.MeterConfig())
    assert shell.refusal(INSERT, entity) is Code.INVALID_ARGUMENT


def test_direct_counters(shell: Shell, switch: FakeSwitch) -> None:
    start = p4r.CounterData(packet_count=2, byte_count=200)
    shell.insert(shell.entry("exact_table", EXACT, action=shell.action("forward", b"\x01"), counter_data=start))
    assert switch.state is not None
    hit = switch.state.tables["EntitiesIngress.exact_table"].lookup((0x0A0000000001, 1))
    assert hit is not None
    hit.count(64)
    (entity,) = shell.read(shell.entry("exact_table", counter_data=p4r.CounterData()))
    assert entity.table_entry.counter_data == p4r.CounterData(packet_count=3, byte_count=264)
    (entity,) = shell.read(shell.entry("exact_table"))
    assert not entity.table_entry.HasField("counter_data")
    shell.modify(shell.entry("exact_table", EXACT, action=shell.action("forward", b"\x02")))
    wanted = shell.entry("exact_table", EXACT).table_entry
    (entity,) = shell.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=wanted)))
    assert entity.direct_counter_entry.data.packet_count == 3
    assert entity.direct_counter_entry.table_entry == wanted
    zero = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=wanted, data=p4r.CounterData()))
    shell.modify(zero)
    (entity,) = shell.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry()))
    assert entity.direct_counter_entry.data == p4r.CounterData()
    shell.modify(shell.entry("exact_table", EXACT, counter_data=start))
    (entity,) = shell.read(shell.entry("exact_table", EXACT, counter_data=start))
    assert entity.table_entry.counter_data == start
    assert entity.table_entry.action.action == shell.action("forward", b"\x02")


def default_entry(shell: Shell, table: str, **fields: Any) -> p4r.Entity:
    return shell.entry(table, is_default_action=True, **fields)


def test_counters_of_default_entries_count_what_matches_nothing(shell: Shell, switch: FakeSwitch) -> None:
    assert switch.state is not None
    counts = p4r.CounterData(packet_count=2, byte_count=128)
    asked = default_entry(shell, "exact_table", counter_data=p4r.CounterData())
    for _ in range(2):
        switch.state.tables["EntitiesIngress.exact_table"].default_entry.count(64)
    (entity,) = shell.read(asked)
    assert entity.table_entry.counter_data == counts
    key = default_entry(shell, "exact_table").table_entry
    counter = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))
    shell.modify(default_entry(shell, "exact_table", action=shell.action("forward", b"\x01")))
    assert [entity.direct_counter_entry.data for entity in shell.read(counter)] == [counts]  # a new action keeps them
    counter.direct_counter_entry.data.packet_count = 7
    shell.modify(counter)
    assert shell.read(counter) == [counter]
    shell.modify(default_entry(shell, "exact_table", counter_data=counts))
    (entity,) = shell.read(asked)
    assert entity.table_entry.counter_data == counts
    key.priority = 1
    assert shell.read_refusal(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key)))


def test_a_direct_counters_action_and_metadata_mean_nothing(shell: Shell) -> None:
    shell.insert(shell.entry("exact_table", EXACT, action=shell.action("forward", b"\x01"), metadata=b"a"))
    stale = shell.entry("exact_table", EXACT, action=shell.action("set_class", b"\x02"), metadata=b"b").table_entry
    (entity,) = shell.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=stale)))
    assert entity.direct_counter_entry.table_entry == shell.entry("exact_table", EXACT).table_entry


def test_a_const_default_entry_says_so(shell: Shell) -> None:
    entries = {table: shell.read(default_entry(shell, table))[0] for table in ("lpm_table", "exact_table")}
    assert entries["lpm_table"].table_entry.is_const
    assert not entries["exact_table"].table_entry.is_const


def test_a_default_entry_with_a_bad_filter_fails_alone(shell: Shell) -> None:
    bad = default_entry(shell, "lpm_table", action=p4r.Action(action_id=1))
    request = p4r.ReadRequest(device_id=7, entities=[default_entry(shell, "lpm_table"), bad])
    answers = shell.core.read(request)
    assert len(next(answers).entities) == 1
    with pytest.raises(P4RuntimeError) as caught:
        next(answers)
    assert caught.value.code is Code.UNKNOWN
    assert [detail.canonical_code for detail in caught.value.details] == [Code.OK, Code.INVALID_ARGUMENT]


def test_refused_direct_counters(shell: Shell) -> None:
    entry = shell.entry("exact_table", EXACT).table_entry
    counter = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=entry, data=p4r.CounterData()))
    assert shell.refusal(MODIFY, counter) is Code.NOT_FOUND
    assert shell.read_refusal(counter) is Code.NOT_FOUND
    assert shell.refusal(INSERT, counter) is Code.INVALID_ARGUMENT
    without = shell.entry("lpm_table", lpm_match(8), action=shell.action("drop"), counter_data=p4r.CounterData())
    assert shell.refusal(INSERT, without) is Code.INVALID_ARGUMENT
    other = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=without.table_entry))
    assert shell.refusal(MODIFY, other) is Code.INVALID_ARGUMENT
    negative = shell.entry(
        "exact_table", EXACT, action=shell.action("forward", b"\x01"), counter_data=p4r.CounterData(byte_count=-1)
    )
    assert shell.refusal(INSERT, negative) is Code.INVALID_ARGUMENT
    shell.insert(shell.entry("exact_table", EXACT, action=shell.action("forward", b"\x01")))
    moved = shell.entry(
        "exact_table", EXACT, action=shell.action("forward", b"\x02"), counter_data=p4r.CounterData(byte_count=-1)
    )
    assert shell.refusal(MODIFY, moved) is Code.INVALID_ARGUMENT
    (entity,) = shell.read(shell.entry("exact_table"))
    assert entity.table_entry.action.action == shell.action("forward", b"\x01")  # the refused update changed nothing


def test_read_filters(shell: Shell) -> None:
    forward, drop = shell.action("forward", b"\x01"), shell.action("drop")
    first = shell.entry("mixed_table", MIXED, priority=1, action=forward, metadata=b"a")
    second = shell.entry("mixed_table", MIXED, priority=2, action=drop, metadata=b"b", controller_metadata=3)
    third = shell.entry("lpm_table", lpm_match(8), action=drop)
    shell.insert(first, second, third)
    every = shell.read(p4r.Entity(table_entry=p4r.TableEntry()))
    preset = shell.id("tables", "preset_table")
    own = [entity for entity in every if not entity.table_entry.is_const and entity.table_entry.table_id != preset]
    assert own == [third, first, second]
    assert shell.read(shell.entry("mixed_table", MIXED)) == [first, second]
    assert shell.read(shell.entry("mixed_table", MIXED, priority=2)) == [second]
    assert shell.read(shell.entry("mixed_table", priority=1)) == [first]
    assert shell.read(shell.entry("mixed_table", action=shell.action("drop"))) == [second]
    assert shell.read(shell.entry("mixed_table", metadata=b"a")) == [first]
    assert shell.read(shell.entry("mixed_table", controller_metadata=3)) == [second]
    assert not shell.read(shell.entry("lpm_table", lpm_match(9)))
    for entity in (
        p4r.Entity(table_entry=p4r.TableEntry(priority=1)),
        p4r.Entity(table_entry=p4r.TableEntry(match=MIXED)),
        shell.entry("mixed_table", member=1),
        shell.entry("mixed_table", action=p4r.Action(action_id=1)),
        shell.entry("mixed_table", MIXED, is_default_action=True),
        shell.entry("mixed_table", [exact(9, b"\x01")]),
        p4r.Entity(),
    ):
        assert shell.read_refusal(entity) is Code.INVALID_ARGUMENT


def test_long_answers_come_in_chunks(shell: Shell) -> None:
    for value in range(600):
        match = [exact(1, value.to_bytes(2, "big")), lpm(2, b"\x0a\x00\x00\x00\x00\x00", 8)]
        shell.insert(shell.entry("lpm_table", match, action=shell.action("drop")))
    request = p4r.ReadRequest(device_id=7, entities=[shell.entry("lpm_table")])
    assert [len(response.entities) for response in shell.core.read(request)] == [256, 256, 88]


def test_long_entries_come_in_more_chunks(shell: Shell) -> None:
    for value in range(60):
        match = [exact(1, value.to_bytes(2, "big")), lpm(2, b"\x0a\x00\x00\x00\x00\x00", 8)]
        shell.insert(shell.entry("lpm_table", match, action=shell.action("drop"), metadata=bytes(100_000)))
    chunks = list(shell.core.read(p4r.ReadRequest(device_id=7, entities=[shell.entry("lpm_table")])))
    assert max(chunk.ByteSize() for chunk in chunks) < 2 << 20  # gRPC's clients take 4 MiB
    assert sum(len(chunk.entities) for chunk in chunks) == 60


def test_a_batch_goes_on_after_an_error_and_reports_each_update(shell: Shell) -> None:
    good = shell.entry("lpm_table", lpm_match(8), action=shell.action("drop"))
    better = shell.entry("lpm_table", lpm_match(9), action=shell.action("drop"))
    with pytest.raises(P4RuntimeError, match=r"2 of 4 write requests failed \(1-2\); the first, number 1: ") as caught:
        shell.insert(good, good, p4r.Entity(), better)
    codes = [detail.canonical_code for detail in caught.value.details]
    assert codes == [Code.OK, Code.ALREADY_EXISTS, Code.INVALID_ARGUMENT, Code.OK]
    assert shell.read(shell.entry("lpm_table")) == [good, better]


def test_a_read_answers_what_it_can_and_reports_the_rest(shell: Shell) -> None:
    shell.insert(shell.entry("lpm_table", lpm_match(8), action=shell.action("drop")))
    wrong = p4r.Entity(table_entry=p4r.TableEntry(table_id=77))
    request = p4r.ReadRequest(device_id=7, entities=[shell.entry("lpm_table"), wrong, shell.entry("lpm_table")])
    answers = shell.core.read(request)
    assert len(next(answers).entities) == 2
    with pytest.raises(P4RuntimeError) as caught:
        next(answers)
    assert [detail.canonical_code for detail in caught.value.details] == [Code.OK, Code.NOT_FOUND, Code.OK]
