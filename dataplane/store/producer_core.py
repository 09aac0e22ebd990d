"""Answers of a producer, without socket or thread; `ContentDatabase` keeps the persistent state.

Versions of a name are counted up. A write is accepted from a sender that has proved that it receives at its address. It
is remembered, so that a retransmission gets the same answer; blocks of a long value wait in memory until the first
segment, which names their hash, makes them the value.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.store import layout
from dataplane.store.content_database import SEGMENT_COST, ContentDatabase, Item, Write
from dataplane.store.dialogues import Dialogue, T, reading
from dataplane.store.errors import FullError, StoreError
from dataplane.store.layout import MOST_IN_FIRST, Form, Preamble
from dataplane.store.names import digest, key_of
from dataplane.store.proofs import Proofs, Source
from dataplane.store.reference.holder import ahead
from dataplane.store.staging import Staging
from dataplane.wire.store import Kind, Message, Reason

REMEMBERED_NS: Final = 600 * NS_PER_S
"""Time for which a write is remembered; clients with more patience may write twice."""
BLOCK_FRESHNESS_MS: Final = 3_600_000
"""Blocks never change: copies of them may be served for long."""
_ON_THE_WAY_NS: Final = 100 * NS_PER_MS
"""Maximum time of an answer on its way to the switch that copies it."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of a producer's content; a write beyond them is refused with FULL, while readers continue."""

    names: int = 100_000
    """Names with content; a value of more than 1,000 bytes takes two, its own and that of its hash."""
    bytes: int = 1 << 30
    """All content, in memory and on disk: 256 bytes per segment besides the data."""
    open_writes: int = 1024
    """Long values with missing blocks; when full, evict the oldest value of the largest sender."""
    open_bytes: int = 256 << 20
    """Blocks of incomplete values; when full, evict the oldest value of the largest sender."""
    remembered_writes: int = 1 << 20
    """Writes of the last ten minutes, which are recognised when repeated."""

    def __post_init__(self) -> None:
        for quota in fields(self):
            if getattr(self, quota.name) < 1:
                raise StoreError(f"quota {quota.name}: {getattr(self, quota.name)} is less than 1")


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Policy of a producer."""

    freshness_ms: int = 1000
    """Time for which copies may be served, unless a write specifies it."""
    writers: frozenset[int] | None = None
    """The addresses that may write; None: all."""
    quotas: Quotas = Quotas()


@dataclass(slots=True)
class _Outstanding:
    """Expiry of copies of a name, for its newest version and older ones; its last requester."""

    until_ns: int = 0
    older_ns: int = 0
    reader: Source | None = None


class ProducerCore:
    """One producer's content. Times are nanoseconds of UTC; the caller calls `database.commit` before it answers."""

    def __init__(
        self, database: ContentDatabase, settings: ProducerSettings, now_ns: int, proofs: Proofs | None = None
    ) -> None:
        self.counters: Counter[str] = Counter()
        self._database, self._settings, self._quotas = database, settings, settings.quotas
        self._proofs = proofs or Proofs()
        self._staging = Staging(self._quotas.open_writes, self._quotas.open_bytes)
        self._outstanding: dict[bytes, _Outstanding] = {}
        for key, item in database.items.items():
            if key[1] == 0:
                self._note(key[0], item, now_ns)  # copies served before the last start

    def receive(self, source: Source, message: Message, now_ns: int, *, writable: bool = True) -> Message | None:
        """Return the answer, None if none is needed; while not `writable`, writes are refused."""
        if message.kind is Kind.INTEREST:
            return self._asked(source, message, now_ns)
        if message.kind is not Kind.PUT:
            return None
        proof, message = message.tag, replace(message, tag=0)
        if self._settings.writers is not None and source[0] not in self._settings.writers:
            return self._refusal(message, Reason.FORBIDDEN)
        if not self._proofs.holds(source, proof, now_ns):
            self.counters["unproven"] += 1
            # Without a version: switches act on refusals that have one.
            told, number = self._proofs.of(source, now_ns), message.number
            return Message(Kind.NACK, message.name, message.segment, number=number, reason=Reason.UNPROVEN, tag=told)
        if message.version:
            return self._recorded(source, message, writable=writable)
        if message.segment:
            return self._stage(source, message, now_ns)
        return self._written(source, message, now_ns, writable=writable)

    def publish(self, name: str, value: bytes, now_ns: int, *, freshness_ms: int | None = None) -> int:
        """Replace a value locally; return its version."""
        key, blocks = key_of(digest(name)), list[bytes]()
        if len(value) <= MOST_IN_FIRST:
            (first,) = layout.in_place(value)
        else:
            preamble, blocks = layout.by_hash(value)
            first = layout.padded(preamble.encode())
            if key_of(preamble.hash) in self._database.blocks:
                blocks = []
        if not self._has_room(key, first, blocks):
            raise FullError(f"{name}: {len(value)} bytes are more than the producer's quotas leave room for")
        freshness_ms = self._settings.freshness_ms if freshness_ms is None else freshness_ms
        return self._replace(key, blocks, Item(0, freshness_ms, 0, first), now_ns)

    def announcement(self, name: str) -> tuple[Source, Message] | None:
        """Return a message to a name's last requester that ends copies of older versions on its way; it may be lost."""
        number = digest(name)
        key = key_of(number)
        outstanding, item = self._outstanding.get(key), self._database.items.get((key, 0))
        if outstanding is None or outstanding.reader is None or item is None:
            return None
        return outstanding.reader, Message(Kind.PUT_ACK, number, version=item.version)

    def settled_ns(self, name: str) -> int:
        """Return when no copy of a version older than the newest can be fresh any more."""
        return self._outstanding.get(key_of(digest(name)), _Outstanding()).older_ns

    def dialogue(self, wanted: Dialogue[T], now_ns: int) -> T:
        """Run a dialogue of this producer with itself."""
        try:
            step = next(wanted)
            while True:
                step = wanted.send([self._asked(None, question, now_ns) for question in step.questions])
        except StopIteration as end:
            result: T = end.value
            return result

    def read(self, name: str, now_ns: int) -> bytes:
        """Return a value as a reader gets it; raise AbsentError if there is none."""
        return self.dialogue(reading(name), now_ns).value

    def tidy(self, now_ns: int) -> None:
        """Forget writes that are no longer retransmitted, and blocks that belong to no value."""
        while self._database.writes:
            write, done = next(iter(self._database.writes.items()))
            if now_ns - done.time_ns <= REMEMBERED_NS:
                break
            self._database.remove_write(write)
        self._staging.tidy(now_ns)

    # questions

    def _asked(self, source: Source | None, message: Message, now_ns: int) -> Message:
        name = key_of(message.name)
        item = self._item(name, message.segment)
        if item is None:
            return self._refusal(message, Reason.ABSENT)
        if len(message.content) < len(item.content):
            return self._refusal(message, Reason.TOO_SHORT)
        self.counters["answered"] += 1
        if message.segment == 0:
            self._note(name, item, now_ns).reader = source
        return _answer(message, Kind.DATA, item)

    def _item(self, name: bytes, segment: int) -> Item | None:
        item = self._database.items.get((name, segment))
        staged = self._staging.get(name) if item is None else None
        if staged is not None and segment in staged.blocks:
            return Item(1, BLOCK_FRESHNESS_MS, 0, staged.blocks[segment])
        return item

    def _note(self, name: bytes, item: Item, now_ns: int) -> _Outstanding:
        outstanding = self._outstanding.setdefault(name, _Outstanding())
        if item.freshness_ms:
            outstanding.until_ns = max(outstanding.until_ns, now_ns + item.freshness_ms * NS_PER_MS + _ON_THE_WAY_NS)
        return outstanding

    # writes

    def _written(self, source: Source, message: Message, now_ns: int, *, writable: bool) -> Message | None:
        write = _identity(source, message)
        before = self._database.writes.get(write)
        if before is not None:
            self.counters["repeated"] += 1
            return self._acknowledgement(message, before.version, now_ns)
        if not writable:
            return self._refusal(message, Reason.FULL)
        preamble = layout.decode(message.content)
        if preamble is None or (preamble.form is Form.IN_PLACE and preamble.joined([message.content]) is None):
            self.counters["malformed"] += 1
            return None
        if preamble.form is Form.BY_HASH and not self._complete(preamble):
            self._staging.remove(key_of(preamble.hash))
            return self._refusal(message, Reason.ABSENT)
        name, blocks = key_of(message.name), self._staged(preamble)
        is_known_again = len(self._database.writes) < self._quotas.remembered_writes
        if not (is_known_again and self._has_room(name, message.content, blocks)):
            return self._refusal(message, Reason.FULL)
        freshness_ms = message.freshness_ms or self._settings.freshness_ms
        item = Item(0, freshness_ms, source[0], message.content)
        version = self._replace(name, blocks, item, now_ns)
        self._database.add_write(write, Write(version, now_ns))
        self.counters["written"] += 1
        return self._acknowledgement(message, version, now_ns)

    def _acknowledgement(self, message: Message, version: int, now_ns: int) -> Message:
        """Return the acknowledgement of a write, with the content, so that copies are renewed at once."""
        name = key_of(message.name)
        item = self._database.items[name, 0]
        if item.version != version:
            return replace(_answer(message, Kind.PUT_ACK, replace(item, version=version)), content=b"", freshness_ms=0)
        self._note(name, item, now_ns)
        return _answer(message, Kind.PUT_ACK, item)

    def _replace(self, name: bytes, blocks: Sequence[bytes], item: Item, now_ns: int) -> int:
        """Store a first segment, and its new blocks, as the next version; return that."""
        before, preamble = self._database.items.get((name, 0)), layout.decode(item.content)
        version = 1 if before is None else before.version % (2**32 - 1) + 1
        old = None if before is None else self._only_of(before, item.content)
        if preamble is not None and preamble.form is Form.BY_HASH:
            number = key_of(preamble.hash)
            for segment, block in enumerate(blocks, start=1):
                self._database.put((number, segment), Item(1, BLOCK_FRESHNESS_MS, 0, block))
            self._staging.remove(number)
        self._database.put((name, 0), replace(item, version=version))
        if name in self._outstanding:
            outstanding = self._outstanding[name]
            outstanding.older_ns, outstanding.until_ns = max(outstanding.older_ns, outstanding.until_ns), 0
        if old is not None:
            self._retire(old, now_ns)
        return version

    def _stage(self, source: Source, message: Message, now_ns: int) -> Message:
        # Blocks that a name already uses need no staging: their hash has been verified.
        number = key_of(message.name)
        is_kept = number in self._database.blocks
        if not is_kept and not self._staging.put(number, message.segment, message.content, source[0], now_ns):
            return self._refusal(message, Reason.FULL)
        self.counters["staged"] += 1
        return replace(message, kind=Kind.PUT_ACK, version=1, content=b"", freshness_ms=0)

    def _complete(self, preamble: Preamble) -> bool:
        """Return whether all blocks of a value are present and match its hash; verified ones are not hashed again."""
        number = key_of(preamble.hash)
        kept, staged = self._database.blocks.get(number), self._staging.get(number)
        if kept is not None:
            return kept.length == preamble.length
        if staged is None:
            return preamble.further == 0 and preamble.joined([b""]) is not None
        if staged.length is None and len(staged.blocks) >= preamble.further:
            blocks = [staged.blocks.get(segment) for segment in range(1, preamble.further + 1)]
            if preamble.joined([b"", *(block for block in blocks if block is not None)]) is not None:
                staged.length = preamble.length
        return staged.length == preamble.length

    def _staged(self, preamble: Preamble) -> list[bytes]:
        """Return the staged blocks of a value that is complete."""
        number = key_of(preamble.hash)
        staged = self._staging.get(number)
        if preamble.form is not Form.BY_HASH or number in self._database.blocks or staged is None:
            return []
        return [staged.blocks[segment] for segment in range(1, preamble.further + 1)]

    def _recorded(self, source: Source, message: Message, *, writable: bool) -> Message:
        """Process content that a switch has recorded, in the writer's version."""
        preamble = layout.decode(message.content) if message.segment == 0 else None
        name = key_of(message.name)
        if name in self._database.blocks or (preamble is not None and preamble.form is Form.BY_HASH):
            return self._refusal(message, Reason.FORBIDDEN)  # blocks must match their hash, which is not checked here
        key = name, message.segment
        before = self._database.items.get(key)
        if before is None or ahead(message.version, of=before.version) > 0:
            item = Item(message.version, 0, source[0], message.content)
            more = _cost(item.content) - (0 if before is None else _cost(before.content))
            if not writable or not self._fits(more, not self._database.has_name(name)):
                return self._refusal(message, Reason.FULL)
            self._database.put(key, item)
            self.counters["recorded"] += 1
        elif message.version != before.version or source[0] != before.writer:
            return self._refusal(message, Reason.STALE)
        return replace(message, kind=Kind.PUT_ACK, content=b"", freshness_ms=0)

    # room

    def _has_room(self, name: bytes, first: bytes, blocks: Sequence[bytes]) -> bool:
        """Return whether a value fits, with its new blocks, in place of its name's current one."""
        before = self._database.items.get((name, 0))
        more = _cost(first) + sum(map(_cost, blocks))
        names = (not self._database.has_name(name)) + bool(blocks)
        if before is not None:
            more -= _cost(before.content)
            old = self._only_of(before, first)
            if old is not None:
                more -= old.further * SEGMENT_COST + layout.padded_bytes(old.length)
                names -= 1
        return self._fits(more, names)

    def _fits(self, more: int, names: int) -> bool:
        """Return whether quotas permit this many more bytes and names; a request for no more always fits."""
        database, quotas = self._database, self._quotas
        has_bytes = more <= 0 or database.nbytes + more <= quotas.bytes
        return has_bytes and (names <= 0 or database.names + names <= quotas.names)

    def _only_of(self, first: Item, by: bytes = b"") -> Preamble | None:
        """Return the value whose blocks are freed when a first segment is replaced by another, None if none are."""
        preamble, after = layout.decode(first.content), layout.decode(by)
        if preamble is None or preamble.form is not Form.BY_HASH or not preamble.further:
            return None
        if after is not None and after.hash == preamble.hash:
            return None
        blocks = self._database.blocks.get(key_of(preamble.hash))
        return preamble if blocks is not None and blocks.names == 1 else None

    def _retire(self, old: Preamble, now_ns: int) -> None:
        """Stage the blocks of a replaced value for its current readers, if there is room."""
        has_room, number = True, key_of(old.hash)
        for segment in range(1, old.further + 1):
            key = number, segment
            has_room = has_room and self._staging.put(*key, self._database.items[key].content, 0, now_ns)
            self._database.delete(key)
        staged = self._staging.get(number)
        if has_room and staged is not None:
            staged.length = old.length
        else:
            self._staging.remove(number)

    def _refusal(self, message: Message, reason: Reason) -> Message:
        self.counters["refused"] += 1
        item = self._item(key_of(message.name), message.segment)
        version, size = (0, 0) if item is None else (item.version, len(item.content) // 256)
        return replace(message, kind=Kind.NACK, version=version, size=size, reason=reason, content=b"", freshness_ms=0)


def _cost(content: bytes) -> int:
    return len(content) + SEGMENT_COST


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
    """Return the key that identifies a repeated write: the requester, its number, and everything to be written."""
    parts = (*source, message.number, message.name, message.freshness_ms)
    return hashlib.blake2b(repr(parts).encode() + message.content, digest_size=16).digest()
