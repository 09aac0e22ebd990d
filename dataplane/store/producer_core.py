"""What a producer answers: no socket and no thread; `ContentDatabase` keeps what must not be forgotten.

Versions of a name are counted up. A write is remembered, so that it is answered alike when it comes again; blocks of
a long value wait in memory until the first segment, which names their hash, makes them the value.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

from dataplane.store import layout
from dataplane.store.content_database import ContentDatabase, Item, Key, Write
from dataplane.store.dialogues import Dialogue, T, reading
from dataplane.store.layout import MOST_IN_FIRST, Form, Preamble
from dataplane.store.names import digest
from dataplane.store.reference.holder import ahead
from dataplane.wire.store import Kind, Message, Reason

Source = tuple[int, int]
"""IPv4 address and UDP port."""

MS: Final = 1_000_000
S: Final = 1_000_000_000
REMEMBERED_NS: Final = 600 * S
"""How long a write is known again; clients that are more patient than that may write twice."""
BLOCK_FRESHNESS_MS: Final = 3_600_000
"""Blocks never change: copies of them may be given out for long."""
_GRACE_NS: Final = 30 * S
"""How long blocks are kept that no value has any more, for those who are reading it; or not yet."""
_ON_THE_WAY_NS: Final = 100 * MS
"""What an answer may take to the switch that copies it."""


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What a producer allows."""

    freshness_ms: int = 1000
    """For how long copies may be given out, where a write does not say."""
    writers: frozenset[int] | None = None
    """The addresses that may write; None: everybody."""
    most_staged_bytes: int = 256 << 20
    """Blocks of values that are not complete yet."""


@dataclass(slots=True)
class Staged:
    """Blocks that are no value's (yet, or any more) and when one came last."""

    since_ns: int
    blocks: dict[int, bytes] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """What they take."""
        return sum(map(len, self.blocks.values()))


@dataclass(slots=True)
class _Outstanding:
    """Until when copies of a name may be given out, of its newest version and of older ones; who asked for it last."""

    until_ns: int = 0
    older_ns: int = 0
    reader: Source | None = None


class ProducerCore:
    """One producer's content. Times are nanoseconds of UTC; `database.commit` is the caller's, before he answers."""

    def __init__(self, database: ContentDatabase, settings: ProducerSettings, now_ns: int) -> None:
        self.counters: Counter[str] = Counter()
        self._database, self._settings = database, settings
        self._staged: dict[int, Staged] = {}
        self._staged_bytes = 0
        self._outstanding: dict[int, _Outstanding] = {}
        self._values: Counter[int] = Counter()
        for key, item in database.items.items():
            self._count_value(key, item, 1)
            if key[1] == 0:
                self._note(key[0], item, now_ns)  # what was outstanding out before the last start

    def receive(self, source: Source, message: Message, now_ns: int) -> Message | None:
        """Return the answer, None for what wants none."""
        if message.kind is Kind.INTEREST:
            return self._asked(source, message, now_ns)
        if message.kind is not Kind.PUT:
            return None
        if self._settings.writers is not None and source[0] not in self._settings.writers:
            return self._refusal(message, Reason.FORBIDDEN)
        if message.version:
            return self._recorded(source, message)
        return self._stage(message, now_ns) if message.segment else self._written(source, message, now_ns)

    def publish(self, name: str, value: bytes, now_ns: int, *, freshness_ms: int | None = None) -> int:
        """Replace a value from here; return its version."""
        number, blocks = digest(name), list[bytes]()
        if len(value) <= MOST_IN_FIRST:
            (first,) = layout.in_place(value)
        else:
            preamble, blocks = layout.by_hash(value)
            first = layout.padded(preamble.encode())
            for place, block in enumerate(blocks, start=1):
                self._keep((preamble.hash, place), Item(1, BLOCK_FRESHNESS_MS, 0, block))
        freshness_ms = self._settings.freshness_ms if freshness_ms is None else freshness_ms
        return self._replace(number, first, freshness_ms, 0, now_ns)

    def announcement(self, name: str) -> tuple[Source, Message] | None:
        """Return what ends copies of older versions on the way to who asked for a name last; it may be lost."""
        number = digest(name)
        outstanding, item = self._outstanding.get(number), self._database.items.get((number, 0))
        if outstanding is None or outstanding.reader is None or item is None:
            return None
        return outstanding.reader, Message(Kind.PUT_ACK, number, version=item.version)

    def settled_ns(self, name: str) -> int:
        """Return when no copy of an older version than the newest can be fresh any more."""
        return self._outstanding.get(digest(name), _Outstanding()).older_ns

    def dialogue(self, wanted: Dialogue[T], now_ns: int) -> T:
        """Carry out a dialogue of this producer with itself."""
        try:
            step = next(wanted)
            while True:
                step = wanted.send([self._asked(None, question, now_ns) for question in step.questions])
        except StopIteration as end:
            result: T = end.value
            return result

    def read(self, name: str, now_ns: int) -> bytes:
        """Return a value as a reader gets it; raise AbsentError where there is none."""
        return self.dialogue(reading(name), now_ns).value

    def tidy(self, now_ns: int) -> None:
        """Forget writes that are not repeated any more, and blocks that are no value's."""
        while self._database.writes:
            write, done = next(iter(self._database.writes.items()))
            if now_ns - done.time_ns <= REMEMBERED_NS:
                break
            self._database.remove_write(write)
        for number, staged in list(self._staged.items()):
            if now_ns - staged.since_ns > _GRACE_NS:
                self._unstage(number)

    # questions

    def _asked(self, source: Source | None, message: Message, now_ns: int) -> Message:
        item = self._item(message.name, message.segment)
        if item is None:
            return self._refusal(message, Reason.ABSENT)
        if len(message.content) < len(item.content):
            return self._refusal(message, Reason.TOO_SHORT)
        self.counters["answered"] += 1
        if message.segment == 0:
            self._note(message.name, item, now_ns).reader = source
        return _answer(message, Kind.DATA, item)

    def _item(self, name: int, segment: int) -> Item | None:
        item = self._database.items.get((name, segment))
        if item is None and name in self._staged:
            content = self._staged[name].blocks.get(segment)
            item = None if content is None else Item(1, BLOCK_FRESHNESS_MS, 0, content)
        return item

    def _note(self, name: int, item: Item, now_ns: int) -> _Outstanding:
        outstanding = self._outstanding.setdefault(name, _Outstanding())
        if item.freshness_ms:
            outstanding.until_ns = max(outstanding.until_ns, now_ns + item.freshness_ms * MS + _ON_THE_WAY_NS)
        return outstanding

    # writes

    def _written(self, source: Source, message: Message, now_ns: int) -> Message | None:
        write = _identity(source, message)
        before = self._database.writes.get(write)
        if before is not None:
            self.counters["repeated"] += 1
            return self._acknowledgement(message, before.version, now_ns)
        preamble = layout.decode(message.content)
        if preamble is None or (preamble.form is Form.IN_PLACE and preamble.joined([message.content]) is None):
            self.counters["malformed"] += 1
            return None
        if preamble.form is Form.BY_HASH and not self._complete(preamble):
            self._unstage(preamble.hash)
            return self._refusal(message, Reason.ABSENT)
        freshness_ms = message.freshness_ms or self._settings.freshness_ms
        version = self._replace(message.name, message.content, freshness_ms, source[0], now_ns)
        self._database.add_write(write, Write(version, now_ns))
        self.counters["written"] += 1
        return self._acknowledgement(message, version, now_ns)

    def _acknowledgement(self, message: Message, version: int, now_ns: int) -> Message:
        """Return what says that a write is done, with the content, so that copies are renewed at once."""
        item = self._database.items[message.name, 0]
        if item.version != version:
            return replace(_answer(message, Kind.PUT_ACK, replace(item, version=version)), content=b"", freshness_ms=0)
        self._note(message.name, item, now_ns)
        return _answer(message, Kind.PUT_ACK, item)

    def _replace(self, name: int, first: bytes, freshness_ms: int, writer: int, now_ns: int) -> int:
        key = name, 0
        before = self._database.items.get(key)
        version = 1 if before is None else before.version % (2**32 - 1) + 1
        # Its new value first: the old one's blocks may be among the new one's.
        preamble = layout.decode(first)
        if preamble is not None and preamble.form is Form.BY_HASH and preamble.hash in self._staged:
            for place, block in self._staged[preamble.hash].blocks.items():
                self._keep((preamble.hash, place), Item(1, BLOCK_FRESHNESS_MS, 0, block))
            self._unstage(preamble.hash)
        self._keep(key, Item(version, freshness_ms, writer, first))
        if name in self._outstanding:
            outstanding = self._outstanding[name]
            outstanding.older_ns, outstanding.until_ns = max(outstanding.older_ns, outstanding.until_ns), 0
        if before is not None:
            self._retire(before, now_ns)
        return version

    def _stage(self, message: Message, now_ns: int) -> Message:
        if (message.name, message.segment) not in self._database.items:
            while self._staged and self._staged_bytes + len(message.content) > self._settings.most_staged_bytes:
                self._unstage(next(iter(self._staged)))  # the oldest; its writer learns of it on completion
            self._put_aside(message.name, message.segment, message.content, now_ns)
        self.counters["staged"] += 1
        return replace(message, kind=Kind.PUT_ACK, version=1, content=b"", freshness_ms=0)

    def _put_aside(self, number: int, segment: int, block: bytes, now_ns: int) -> None:
        staged = self._staged.setdefault(number, Staged(now_ns))
        self._staged_bytes += len(block) - len(staged.blocks.get(segment, b""))
        staged.blocks[segment], staged.since_ns = block, now_ns

    def _complete(self, preamble: Preamble) -> bool:
        """Return whether all blocks of a value are here, and are what was hashed."""
        blocks = [b""]
        for place in range(1, preamble.further + 1):
            item = self._item(preamble.hash, place)
            if item is None:
                return False
            blocks.append(item.content)
        return preamble.joined(blocks) is not None

    def _recorded(self, source: Source, message: Message) -> Message:
        """Take what a switch has recorded, in the writer's version."""
        if message.name in self._values:
            return self._refusal(message, Reason.FORBIDDEN)  # blocks are what their hash says
        key = message.name, message.segment
        before = self._database.items.get(key)
        if before is None or ahead(message.version, of=before.version) > 0:
            self._keep(key, Item(message.version, 0, source[0], message.content))
            self.counters["recorded"] += 1
        elif message.version != before.version or source[0] != before.writer:
            return self._refusal(message, Reason.STALE)
        return replace(message, kind=Kind.PUT_ACK, content=b"", freshness_ms=0)

    # blocks

    def _keep(self, key: Key, item: Item) -> None:
        before = self._database.items.get(key)
        if before is not None:
            self._count_value(key, before, -1)
        self._database.put(key, item)
        self._count_value(key, item, 1)

    def _count_value(self, key: Key, item: Item, by: int) -> None:
        """Note how many values have blocks of a hash."""
        preamble = layout.decode(item.content) if key[1] == 0 else None
        if preamble is not None and preamble.form is Form.BY_HASH:
            self._values[preamble.hash] += by

    def _retire(self, first: Item, now_ns: int) -> None:
        """Keep the blocks of a value that was replaced only for those who are reading it."""
        preamble = layout.decode(first.content)
        if preamble is None or preamble.form is not Form.BY_HASH or self._values[preamble.hash]:
            return
        del self._values[preamble.hash]
        for place in range(1, preamble.further + 1):
            self._put_aside(preamble.hash, place, self._database.items[preamble.hash, place].content, now_ns)
            self._database.delete((preamble.hash, place))

    def _unstage(self, number: int) -> None:
        staged = self._staged.pop(number, None)
        if staged is not None:
            self._staged_bytes -= staged.nbytes

    def _refusal(self, message: Message, reason: Reason) -> Message:
        self.counters["refused"] += 1
        item = self._item(message.name, message.segment)
        version, size = (0, 0) if item is None else (item.version, len(item.content) // 256)
        return replace(message, kind=Kind.NACK, version=version, size=size, reason=reason, content=b"", freshness_ms=0)


def _answer(message: Message, kind: Kind, item: Item) -> Message:
    return replace(
        message,
        kind=kind,
        version=item.version,
        freshness_ms=item.freshness_ms,
        content=item.content,
        size=len(item.content) // 256,
        reason=Reason.NONE,
    )


def _identity(source: Source, message: Message) -> bytes:
    """Return what a write is known by when it comes again: who asked, its number, and all of what was to be written."""
    parts = (*source, message.number, message.name, message.freshness_ms)
    return hashlib.blake2b(repr(parts).encode() + message.content, digest_size=16).digest()
