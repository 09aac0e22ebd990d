"""Digests and log messages as values: reads the ring that compiled code writes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

from dataplane.native import pointer_to
from dataplane.program.model import Program
from dataplane.switch.abi import EventRing
from dataplane.switch.compiler.lowering.routine import LogText
from dataplane.switch.pipeline import DigestMessage
from dataplane.switch.tables.arrays import word_count
from dataplane.switch.tables.words import zeroed_words

EVENT_WORDS = 1 << 16
"""Half a megabyte: several thousand digests between two reads."""
_DIGEST = 0
_HEAD_WORDS = 3


@dataclass(slots=True)
class Events:
    """Events from one read of the ring."""

    digests: list[DigestMessage] = field(default_factory=list)
    log_lines: list[str] = field(default_factory=list)


class EventReader:
    """A ring and its only reader; `ring` goes into every machine of a program."""

    def __init__(self, program: Program, log_messages: Sequence[LogText]) -> None:
        self._digests = tuple(program.digests.values())
        self._log_messages = tuple(log_messages)
        self._words = (ctypes.c_uint64 * EVENT_WORDS).from_buffer(zeroed_words(EVENT_WORDS))
        self.ring = EventRing()
        self.ring.mask = EVENT_WORDS - 1
        self.ring.words = pointer_to(self._words)

    def read(self) -> Events:
        """Return everything written since the last call, oldest first."""
        events = Events()
        tail, head = self.ring.tail, self.ring.head
        while tail != head:
            length, kind, number = (self._word(tail + word) for word in range(_HEAD_WORDS))
            words = [self._word(tail + word) for word in range(_HEAD_WORDS, length)]
            if kind == _DIGEST:
                events.digests.append(self._digest(number, words))
            else:
                events.log_lines.append(self._log_line(number, words))
            tail += length
        self.ring.tail = tail
        return events

    def _word(self, index: int) -> int:
        return self._words[index & (EVENT_WORDS - 1)]

    def _digest(self, number: int, words: Sequence[int]) -> DigestMessage:
        spec = self._digests[number].spec
        counts = [word_count(width) for _, width in spec.fields]
        return DigestMessage(spec.name, tuple(_join(words, counts)))

    def _log_line(self, number: int, words: Sequence[int]) -> str:
        text = self._log_messages[number]
        values = _join(words, [count for count, _ in text.values])
        signed = [
            value - (1 << 64 * count) if is_signed and value >> (64 * count - 1) else value
            for value, (count, is_signed) in zip(values, text.values, strict=True)
        ]
        return text.pieces[0] + "".join(f"{value}{piece}" for value, piece in zip(signed, text.pieces[1:], strict=True))


def _join(words: Sequence[int], counts: Sequence[int]) -> list[int]:
    """Return values of that many words each, low word first."""
    values, position = [], 0
    for count in counts:
        values.append(sum(words[position + offset] << 64 * offset for offset in range(count)))
        position += count
    return values
