"""Records of the event ring as digests and log lines, also where they run over the ring's end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dataplane.program.loader import load_program
from dataplane.switch.compiled.events import EVENT_WORDS, EventReader
from dataplane.switch.compiler.lowering.routine import LogText
from dataplane.switch.pipeline import DigestMessage

PROGRAMS = Path(__file__).parents[2] / "programs"
DIGEST, LOG_MESSAGE = 0, 1


@pytest.fixture(scope="module")
def reader() -> EventReader:
    program = load_program(PROGRAMS / "stateful.json", PROGRAMS / "stateful.p4info.txtpb")
    return EventReader(program, [LogText(("plain",), ()), LogText(("a=", " b=", "!"), ((1, True), (2, False)))])


def write(reader: EventReader, kind: int, number: int, values: Sequence[int]) -> None:
    for word in (3 + len(values), kind, number, *values):
        reader.ring.words[reader.ring.head % EVENT_WORDS] = word
        reader.ring.head += 1


def test_log_lines_have_their_values_with_sign_and_width(reader: EventReader) -> None:
    write(reader, LOG_MESSAGE, 0, [])
    write(reader, LOG_MESSAGE, 1, [(1 << 64) - 5, 7, 1])
    assert reader.read().log_lines == ["plain", f"a=-5 b={(1 << 64) + 7}!"]
    assert reader.read().log_lines == []


def test_digests_run_over_the_end_of_the_ring(reader: EventReader) -> None:
    digest = next(iter(reader._digests))
    widths = [width for _, width in digest.spec.fields]
    values = [index + 1 for index in range(len(widths))]
    words = [part for value, width in zip(values, widths, strict=True) for part in (value, *[0] * ((width - 1) // 64))]
    reader.ring.head = reader.ring.tail = EVENT_WORDS * 3 - 4
    write(reader, DIGEST, 0, words)
    write(reader, DIGEST, 0, words)
    message = DigestMessage(digest.spec.name, tuple(values))
    assert reader.read().digests == [message, message]
