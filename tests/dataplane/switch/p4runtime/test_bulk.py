"""Inserts in bulk against inserts one after the other: the same tables, errors and messages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from finsy.proto import p4r

from dataplane.program.loader import load_program
from dataplane.switch.p4runtime import P4RuntimeCore, P4RuntimeError, batches
from dataplane.switch.p4runtime.bulk.plan import BulkPlan
from dataplane.switch.p4runtime.catalog import Catalog
from tests.dataplane.switch.p4runtime.conftest import PROGRAMS, FakeSwitch, Shell
from tests.p4runtime_client import Names, canonical, exact, lpm, ternary

SWEEP = Path(__file__).parents[3] / "benchmarks" / "programs" / "sweep.json"
MODES = p4r.WriteRequest.Atomicity.values()


class Writer:
    """A switch that runs a program, and the outcome of each of its batches."""

    def __init__(self, program: Path) -> None:
        self.switch = FakeSwitch()
        self.program = load_program(program, program.with_suffix(".p4info.txtpb"))
        self.switch.commit(self.program)
        self.shell = Shell(P4RuntimeCore(self.switch), self.program.p4info)

    def outcome(self, request: p4r.WriteRequest) -> object:
        """Return a batch's errors, and what the tables hold after it."""
        try:
            self.shell.core.write(request)
            errors: object = None
        except P4RuntimeError as error:
            errors = error.code, error.message, error.details
        return errors, [
            entity.SerializeToString() for entity in self.shell.read(p4r.Entity(table_entry=p4r.TableEntry()))
        ]


@pytest.fixture
def names() -> Names:
    return Names(load_program(SWEEP, SWEEP.with_suffix(".p4info.txtpb")).p4info)


def some_entry(names: Names, rng: random.Random) -> p4r.Entity:
    """Return an entry of one of three tables, one of few, so that some of them are the same."""
    action = p4r.TableAction(action=rng.choice([names.action("Inbound.forward", 3), names.action("Inbound.drop")]))
    value = rng.randrange(40)
    match rng.randrange(3):
        case 0:
            return names.table_entry("Inbound.exact_table", [exact(1, value)], action)
        case 1:
            length = rng.randint(1, 32)
            prefix = value << 26 >> 32 - length << 32 - length & 0xFFFF_FFFF
            return names.table_entry("Inbound.prefix_table", [lpm(1, prefix, length)] * (length > 2), action)
        case _:
            fields = [ternary(1, value & 6, 6), ternary(2, value, 0xFF)][: rng.randint(0, 2)]
            return names.table_entry("Inbound.ternary_table", fields, action, rng.randint(0, 3))


def put(messages: Iterable[object], field: str, value: object) -> None:
    for message in messages:
        setattr(message, field, value)


def spoil(update: p4r.Update, rng: random.Random) -> None:
    """Make an update one that rows cannot hold, valid or not."""
    entry = update.entity.table_entry
    ways: list[Callable[[], object]] = [
        lambda: entry.ClearField("action"),
        lambda: entry.match.add(field_id=9, exact=p4r.FieldMatch.Exact(value=b"\1")),
        lambda: entry.match.extend([*entry.match]),
        lambda: entry.ClearField("match"),
        lambda: setattr(entry, "priority", -1),
        lambda: setattr(entry, "is_const", True),
        lambda: setattr(entry, "is_default_action", True),
        lambda: setattr(entry, "metadata", b"mine"),
        lambda: setattr(entry, "controller_metadata", 7),
        lambda: setattr(entry, "table_id", 5),
        lambda: setattr(entry, "table_id", 0),
        lambda: setattr(entry.action.action, "action_id", 5),
        lambda: entry.action.action.params.add(param_id=1, value=b"\1"),
        lambda: entry.action.action.params.add(param_id=2, value=b"\1"),
        lambda: put(entry.action.action.params, "value", b"\xff\xff"),
        lambda: put(entry.action.action.params, "value", b""),
        lambda: put((field.exact for field in entry.match), "value", b"\0\0\0\0\0\0\0\0\0\7"),
        lambda: put((field.exact for field in entry.match), "value", canonical(1 << 40)),
        lambda: put((field.lpm for field in entry.match), "prefix_len", 77),
        lambda: put((field.lpm for field in entry.match), "prefix_len", -1),
        lambda: put((field.ternary for field in entry.match), "mask", b"\0"),
        lambda: put((field.ternary for field in entry.match), "value", b"\xff\xff"),
        lambda: put((field.optional for field in entry.match), "value", b"\1"),
        entry.counter_data.SetInParent,
        lambda: setattr(update, "type", rng.choice(p4r.Update.Type.values())),
        lambda: update.entity.ClearField("table_entry"),
        update.entity.register_entry.SetInParent,
        lambda: entry.action.ClearField("action"),
        lambda: setattr(entry.action, "action_profile_member_id", 1),
    ]
    rng.choice(ways)()


@pytest.mark.parametrize("seed", range(12))
def test_bulk_does_what_single_updates_do(names: Names, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    writers = Writer(SWEEP), Writer(SWEEP)
    monkeypatch.setattr(batches, "SLICE_UPDATES", 7)
    for _ in range(6):
        request = writers[0].shell.request(p4r.Update.INSERT, *(some_entry(names, rng) for _ in range(30)))
        request.updates.sort(key=lambda update: update.entity.table_entry.table_id)
        request.atomicity = rng.choice(MODES)
        for update in rng.sample(list(request.updates), rng.choice((0, 0, 3))):
            spoil(update, rng)
        outcomes = []
        for writer, fewest in zip(writers, (1, 1_000_000), strict=True):
            monkeypatch.setattr(batches, "FEWEST_ROWS", fewest)
            outcomes.append(writer.outcome(request))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", MODES)
def test_bulk_fills_a_table_and_names_the_entry_too_many(mode: p4r.WriteRequest.Atomicity.ValueType) -> None:
    writer = Writer(PROGRAMS / "p4rt_entities.json")
    shell = writer.shell
    entries = [
        shell.entry("exact_table", [exact(1, number), exact(2, 1)], action=shell.action("forward", b"\1"))
        for number in range(1, 6)
    ]
    request = shell.request(p4r.Update.INSERT, *entries)
    request.atomicity = mode
    with pytest.raises(P4RuntimeError, match=r"the first, number 4: EntitiesIngress.exact_table: full: 4 entries"):
        shell.core.write(request)
    kept = shell.read(shell.entry("exact_table"))
    assert kept == (entries[:4] if mode == p4r.WriteRequest.CONTINUE_ON_ERROR else [])


def rows_in(plan: BulkPlan, request: p4r.WriteRequest) -> Iterator[int]:
    data = request.SerializeToString()
    for run in plan.runs(data, len(request.updates), 1):
        if run.rows is not None:
            yield from range(run.start, run.start + run.count)


def test_plain_inserts_become_rows_and_others_do_not(names: Names) -> None:
    writer = Writer(SWEEP)
    plan = BulkPlan(Catalog(writer.program))
    action = p4r.TableAction(action=names.action("Inbound.forward", 3))
    entries = [names.table_entry("Inbound.exact_table", [exact(1, value)], action) for value in range(5)]
    request = writer.shell.request(p4r.Update.INSERT, *entries)
    assert [*rows_in(plan, request)] == [0, 1, 2, 3, 4]
    request.updates[1].type = p4r.Update.MODIFY
    request.updates[3].entity.table_entry.metadata = b"mine"
    assert [*rows_in(plan, request)] == [0, 2, 4]


def test_every_truncation_of_a_request_is_left_to_python(names: Names) -> None:
    writer = Writer(SWEEP)
    plan = BulkPlan(Catalog(writer.program))
    action = p4r.TableAction(action=names.action("Inbound.forward", 3))
    entries = [
        names.table_entry("Inbound.exact_table", [exact(1, 7)], action),
        names.table_entry("Inbound.ternary_table", [ternary(1, 2, 6)], action, 2),
    ]
    data = writer.shell.request(p4r.Update.INSERT, *entries).SerializeToString()
    assert [run.rows is None for run in plan.runs(data, 2, 1)] == [False, False]
    for length in range(len(data)):
        assert [(run.count, run.rows) for run in plan.runs(data[:length], 2, 1)] == [(2, None)]
