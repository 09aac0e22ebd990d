"""A switch that holds named content.

The controller gives a name a cell. A *cached* name's content is a copy of its producer's; a *recorded* name's content
lives only there: the switch itself is the store.

A copy must never be older than a write that a client knows is done. A write (PUT) is done once the producer says so
(PUT_ACK, with the version that it made). Everything that the producer sends passes the switch, so the switch sees every
version before any reader does. Hence:

1. The cell remembers the newest version that passed in an answer of the producer, and accepts no older one. A newer one
   that cannot be kept (an acknowledgement without content, a NACK, DATA that is not to be copied) ends the copy. A PUT
   that passes ends nothing: until it is acknowledged either value is correct, and no client can evict a name by writing
   something that the producer will refuse.
2. Packets that passed before the name had its cell are unknown. So a cell serves nothing before it has seen the answer
   to a request that it saw pass: it puts its `generation`, a number that is used once, as the tag into an INTEREST that
   has none, and the producer's answer repeats it. That answer is as new as everything done before. (A PUT gets no tag:
   sent again, it is answered with the version that it made the first time.) A switch's own answer repeats the tag as a
   producer's does: what it serves is as new, so copies of copies are possible.
3. A cell of another generation is empty: cells move from name to name, and a name may return, with nothing to clear.
4. A copy is served as long as it is fresh, with its remaining freshness, so that freshness bounds the age of copies of
   copies, in switches that do not see everything that the producer sends. It is never more than `LONGEST_FRESHNESS_MS`.
5. Only packets that arrive at the producer's port with the producer's address count as the producer's.
6. A version that is `FAR` ahead of the last one and did not come with the tag ends the copy, and nothing is served
   before another request is answered: the answer's version then counts, in case the far one was forged.

Recorded content has the versions that its writers assign, and does not age. A PUT of a newer version is kept and can be
read at once; a repetition is acknowledged again; anything else is refused with the stored version. With `forward` the
PUT is forwarded to the main server, whose acknowledgement is the only one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from dataplane.wire.store import Kind, Message, Reason

VERSION_BITS = 32
FAR = 1 << 16
"""Largest step from one version to the next that is trusted without having been requested."""
LONGEST_FRESHNESS_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Sender:
    """Origin of a packet: its address, and the switch port at which it arrives."""

    address: int
    port: int


@dataclass(frozen=True, slots=True)
class Cached:
    """A name whose content is copied from a producer."""

    generation: int
    producer: Sender


@dataclass(frozen=True, slots=True)
class Recorded:
    """A name that is stored in the switch; `writers` are the addresses that may write it."""

    generation: int
    writers: frozenset[int]
    forward: bool = False


Held: TypeAlias = Cached | Recorded


@dataclass(frozen=True, slots=True)
class Cell:
    """Contents of a cell; `version` is the newest seen, and that of the content, if any."""

    generation: int = 0
    version: int = 0
    writer: int = 0
    arrival_us: int = 0
    freshness_ms: int = 0
    synced: bool = False
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Back:
    """The switch's answer."""

    message: Message


@dataclass(frozen=True, slots=True)
class On:
    """The packet is forwarded to its destination."""

    message: Message


Sent: TypeAlias = Back | On


def ahead(version: int, of: int) -> int:
    """Return by how much a version is newer than another, negative if older, modulo 2^32."""
    half = 1 << VERSION_BITS - 1
    return (version - of + half) % (2 * half) - half


def receive(held: Held, cell: Cell, sender: Sender, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
    """Process a packet; return the cell, the packet sent, and the outcome.

    Outcomes are the names of the switch's counters: answered, missed, filled, raised, old, kept, repeated, refused,
    passed.
    """
    if cell.generation != held.generation:
        cell = Cell(held.generation)
    if message.kind is Kind.INTEREST:
        return cell, *_asked(held, cell, message, now_us)
    if isinstance(held, Recorded):
        if message.kind is Kind.PUT:
            return _written(held, cell, sender.address, message, now_us)
    elif message.kind is not Kind.PUT and sender == held.producer and message.version:
        cell, what = _learnt(cell, sender.address, message, now_us)
        return cell, On(message), what
    return cell, On(message), "passed"


def _asked(held: Held, cell: Cell, message: Message, now_us: int) -> tuple[Sent, str]:
    age_us, recorded = now_us - cell.arrival_us, isinstance(held, Recorded)
    content = cell.content if recorded or age_us < cell.freshness_ms * 1000 else None
    if content is None:
        if isinstance(held, Recorded) and not held.forward:
            return _refusal(cell, message, Reason.ABSENT), "refused"
        unsure = not recorded and not cell.synced and not message.tag
        return On(replace(message, tag=held.generation) if unsure else message), "missed"
    if len(message.content) < len(content):
        return _refusal(cell, message, Reason.TOO_SHORT), "refused"
    left_ms = cell.freshness_ms if recorded else max(0, cell.freshness_ms - (age_us * 67109 >> 26) - 1)
    data = _answer(cell, message, Kind.DATA)
    return Back(replace(data, content=content, freshness_ms=left_ms)), "answered"


def _learnt(cell: Cell, source: int, message: Message, now_us: int) -> tuple[Cell, str]:
    passed = ahead(message.version, of=cell.version) if cell.version else 0
    newer = not cell.version or passed > 0
    if message.tag == cell.generation:
        newer |= not cell.synced and passed < -FAR
        cell = replace(cell, synced=True)
    elif passed > FAR:
        cell = replace(cell, synced=False)
    if not newer and message.version != cell.version:
        return cell, "old"
    if cell.synced and message.kind is not Kind.NACK and message.content and message.freshness_ms:
        return _with(cell, source, message, now_us), "filled"
    if newer:
        return replace(cell, version=message.version, content=None), "raised"
    return cell, "passed"


def _written(held: Recorded, cell: Cell, source: int, message: Message, now_us: int) -> tuple[Cell, Sent, str]:
    if source not in held.writers:
        return cell, _refusal(cell, message, Reason.FORBIDDEN), "refused"
    if message.version and (not cell.version or ahead(message.version, of=cell.version) > 0):
        cell, what = _with(cell, source, message, now_us), "kept"
    elif message.version and message.version == cell.version and source == cell.writer:
        what = "repeated"
    else:
        return cell, _refusal(cell, message, Reason.STALE), "refused"
    return cell, On(message) if held.forward else Back(_answer(cell, message, Kind.PUT_ACK)), what


def _with(cell: Cell, source: int, message: Message, now_us: int) -> Cell:
    return Cell(
        generation=cell.generation,
        version=message.version,
        writer=source,
        arrival_us=now_us,
        freshness_ms=min(message.freshness_ms, LONGEST_FRESHNESS_MS),
        synced=cell.synced,
        content=message.content,
    )


def _answer(cell: Cell, message: Message, kind: Kind) -> Message:
    size = len(cell.content or b"") // 256
    return replace(message, kind=kind, version=cell.version, size=size, reason=Reason.NONE, content=b"")


def _refusal(cell: Cell, message: Message, reason: Reason) -> Back:
    return Back(replace(_answer(cell, message, Kind.NACK), reason=reason, freshness_ms=0))
