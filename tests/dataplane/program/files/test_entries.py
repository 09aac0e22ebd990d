"""p4c's entries file: its additions to the JSON's entries, in each form, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from finsy.proto import p4r
from google.protobuf import json_format, text_format

from dataplane.errors import ProgramError
from dataplane.program.files.entries import read_entries
from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from tests.dataplane.program.mutation import PROGRAMS

FILE = PROGRAMS / "presets.entries.txtpb"
FIXED, OPEN, ROUTES, RANKED, SMALLEST, UNREACHED = (
    f"PresetsIngress.{name}" for name in ("fixed", "open", "routes", "ranked", "smallest_wins", "unreached")
)


def load(entries: bytes | Path | None) -> Program:
    return load_program(PROGRAMS / "presets.json", PROGRAMS / "presets.p4info.txtpb", entries=entries)


def read_request() -> p4r.WriteRequest:
    return read_entries(FILE.read_bytes(), str(FILE))


def entries_of(program: Program, table: str) -> list[tuple[int, bool]]:
    return [(entry.priority, entry.is_const) for entry in program.tables[table].presets]


def test_file_gives_const_flags_and_declared_priorities() -> None:
    without, program = load(None), load(FILE)
    assert entries_of(program, FIXED) == [(0, True), (0, True)]
    assert entries_of(program, OPEN) == [(0, True), (0, False)]
    assert entries_of(program, ROUTES) == [(0, True), (0, False), (0, False)]
    assert entries_of(without, RANKED) == [(4, False), (3, False), (2, False), (1, False)]
    assert entries_of(program, RANKED) == [(50, False), (10, True), (9, False), (1, True)]
    for table in (FIXED, OPEN, ROUTES, RANKED, SMALLEST):
        bare, full = (loaded.tables[table].presets for loaded in (without, program))
        assert [(entry.match, entry.call) for entry in bare] == [(entry.match, entry.call) for entry in full]


def test_smallest_wins_tables_get_inverted_p4runtime_priorities() -> None:
    assert [entry.priority for entry in _entries(read_request(), "smallest_wins")] == [10, 20]
    assert entries_of(load(FILE), SMALLEST) == [(2, False), (1, True)]


def test_a_table_that_the_json_lacks_has_what_the_file_says() -> None:
    assert not load(None).tables[UNREACHED].presets
    first, second = load(FILE).tables[UNREACHED].presets
    assert (first.match, first.call, first.is_const) == ((1,), ActionCall("PresetsIngress.forward", (1,)), True)
    assert (second.match, second.is_const) == ((2,), False)


def test_each_form_of_the_file_makes_the_same_program() -> None:
    request, program = read_request(), load(FILE)
    forms = (
        text_format.MessageToString(request).encode(),
        json_format.MessageToJson(request).encode(),
        request.SerializeToString(),
    )
    for form in forms:
        same = load(form)
        assert same == program
        assert (same.digest, same.entries) == (program.digest, program.entries)
    assert load(None).digest != program.digest
    other = read_request()
    _entries(other, "open")[1].is_const = True
    assert load(other.SerializeToString()).digest not in {program.digest, load(None).digest}


def _entries(request: p4r.WriteRequest, table: str) -> list[p4r.TableEntry]:
    ids = {info.preamble.id: info.preamble.alias for info in load(None).p4info.tables}
    entries = [update.entity.table_entry for update in request.updates]
    return [entry for entry in entries if ids[entry.table_id] == table]


def _entry_more(request: p4r.WriteRequest) -> None:
    request.updates.append(request.updates[0])


def _entry_less(request: p4r.WriteRequest) -> None:
    del request.updates[0]


def _other_key(request: p4r.WriteRequest) -> None:
    _entries(request, "open")[0].match[0].exact.value = b"\x09"


def _other_action(request: p4r.WriteRequest) -> None:
    _entries(request, "routes")[1].action.action.params[0].value = b"\x05"


def _other_order(request: p4r.WriteRequest) -> None:
    _entries(request, "ranked")[1].priority = 60


def _unknown_table(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.table_entry.table_id = 0x02000001


def _unknown_action(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.table_entry.action.action.action_id = 0x01000001


def _arguments(request: p4r.WriteRequest) -> None:
    del request.updates[0].entity.table_entry.action.action.params[0]


def _key_left_out(request: p4r.WriteRequest) -> None:
    del request.updates[0].entity.table_entry.match[0]


def _key_of_another_kind(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.table_entry.match[0].lpm.prefix_len = 8


def _unknown_field(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.table_entry.match[0].field_id = 77


def _deletes(request: p4r.WriteRequest) -> None:
    request.updates[0].type = p4r.Update.DELETE


def _default(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.table_entry.is_default_action = True


def _another_entity(request: p4r.WriteRequest) -> None:
    request.updates[0].entity.counter_entry.counter_id = 1


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (_entry_more, r"e\.txtpb: updates\[18\]: is an entry of PresetsIngress\.fixed that the JSON lacks"),
        (_entry_less, r"e\.txtpb: PresetsIngress\.fixed: lacks entry 1 of 2 that the JSON has"),
        (_other_key, r"PresetsIngress\.open: lacks entry 1 of 2 that the JSON has"),
        (_other_action, r"is an entry of PresetsIngress\.routes with another action in the JSON"),
        (_other_order, r"PresetsIngress\.ranked: has priorities of another order than the JSON's"),
        (_unknown_table, r"updates\[0\]: the P4Info has no table 0x02000001"),
        (_unknown_action, r"updates\[0\]: the P4Info has no action 0x01000001"),
        (_arguments, r"updates\[0\]: does not give PresetsIngress\.forward its arguments"),
        (_key_left_out, r"updates\[0\]: hdr\.cells\.kind: exact match expected"),
        (_key_of_another_kind, r"updates\[0\]: hdr\.cells\.kind: exact match expected"),
        (_unknown_field, r"updates\[0\]: has match fields that PresetsIngress\.fixed lacks, or repeats one"),
        (_deletes, r"updates\[0\]: inserts no table entry"),
        (_default, r"updates\[0\]: inserts no table entry"),
        (_another_entity, r"updates\[0\]: inserts no table entry"),
    ],
)
def test_a_file_of_another_program_is_told_in_one_line(
    change: Callable[[p4r.WriteRequest], None], line: str, tmp_path: Path
) -> None:
    request, file = read_request(), tmp_path / "e.txtpb"
    change(request)
    file.write_text(text_format.MessageToString(request))
    with pytest.raises(ProgramError, match=line) as caught:
        load(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"\xff\x00", b"{", b'{"updates": 1}', b"updates {", b"[]", b"{" * 5000, b"updates { entity { foo: 1 } }"],
)
def test_what_is_no_entries_file_is_told_in_one_line(content: bytes) -> None:
    with pytest.raises(ProgramError, match="<entries>: is not an entries file") as caught:
        load(content)
    assert "\n" not in str(caught.value)


def test_the_file_needs_the_p4info_whose_ids_it_uses() -> None:
    with pytest.raises(ProgramError, match=r"presets\.entries\.txtpb: .*there is none"):
        load_program(PROGRAMS / "presets.json", None, entries=FILE)
