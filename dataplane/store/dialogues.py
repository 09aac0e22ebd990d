"""Client dialogues that read or write a name, as generators of requests: no socket, clock or retransmission.

A dialogue yields requests and is sent their answers, in order; it ends with its result, or with an error.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from dataplane.store import layout
from dataplane.store.errors import AbsentError, ForbiddenError, FullError, StaleError, StoreError
from dataplane.store.layout import MOST_BYTES, MOST_IN_FIRST, SEGMENT_BYTES, Form, Preamble
from dataplane.store.names import digest, route_of
from dataplane.wire.store import Kind, Message, Reason

T = TypeVar("T")
_ROOM: Final = bytes(SEGMENT_BYTES)
_FIRST_PAUSE_NS: Final = 1_000_000
_LONGEST_PAUSE_NS: Final = 128_000_000


@dataclass(frozen=True, slots=True)
class Content:
    """A value and its version."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Step:
    """Requests to send after a pause; `purpose` says in errors what was waited for."""

    questions: Sequence[Message]
    purpose: str
    pause_ns: int = 0


Dialogue: TypeAlias = Generator[Step, list[Message], T]


def reading(name: str, *, most_bytes: int = MOST_BYTES) -> Dialogue[Content]:
    """Request a value until all of its segments have the same version; AbsentError if there is none."""
    number, route, pause_ns = digest(name), route_of(name), 0
    first = replace(_interest(number, 0), version=route.first, freshness_ms=route.first_two)
    purpose = f"{name}: an answer"
    while True:
        (answer,) = yield Step((first,), purpose, pause_ns)
        if answer.kind is Kind.NACK:
            raise _refused(name, answer)
        preamble = layout.decode(answer.content)
        if preamble is None:
            raise StoreError(f"{name}: what is there (version {answer.version}) was not written as a value")
        if preamble.length > most_bytes:
            raise StoreError(
                f"{name}: {preamble.length} bytes are stored, more than the requested maximum of {most_bytes}"
            )
        further: list[Message] = []
        if preamble.further:
            purpose = f"{name}: {preamble.further} further segments of version {answer.version}"
            further = yield Step(
                [
                    replace(question, version=route.first, freshness_ms=route.first_two)
                    for question in _further(number, preamble)
                ],
                purpose,
            )
        value = _together(preamble, answer, further)
        if value is not None:
            return Content(value, answer.version)
        # A write was in progress, or a copy of a segment predates it: the copy expires with its freshness at the
        # latest.
        purpose = f"{name}: all segments of one version (the first was of version {answer.version})"
        pause_ns = min(max(2 * pause_ns, _FIRST_PAUSE_NS), _LONGEST_PAUSE_NS)


def writing(name: str, value: bytes, *, freshness_ms: int = 0) -> Dialogue[int]:
    """Write a value; return its new version. `freshness_ms` 0 leaves the freshness to the producer."""
    number = digest(name)
    if len(value) <= MOST_IN_FIRST:
        (first,) = layout.in_place(value)
        (answer,) = yield Step((_put(number, 0, first, 0, freshness_ms),), f"{name}: the acknowledgement of a write")
        return _acknowledged(name, answer)
    preamble, blocks = layout.by_hash(value)
    pause_ns = 0
    while True:
        questions = [_put(preamble.hash, segment, block) for segment, block in enumerate(blocks, start=1)]
        answers = yield Step(questions, f"{name}: the acknowledgements of {len(blocks)} blocks", pause_ns)
        for answer in answers:
            _acknowledged(name, answer)
        first = layout.padded(preamble.encode())
        (answer,) = yield Step((_put(number, 0, first, 0, freshness_ms),), f"{name}: the acknowledgement of a write")
        if answer.kind is not Kind.NACK or answer.reason is not Reason.ABSENT:
            return _acknowledged(name, answer)
        # The producer has restarted, or had no room for incomplete blocks.
        pause_ns = min(max(2 * pause_ns, _FIRST_PAUSE_NS), _LONGEST_PAUSE_NS)


def recording(name: str, value: bytes, *, version: int) -> Dialogue[None]:
    """Write a value into cells of switches, with the writer's version (1 to 2^32 - 1, such as a round's number)."""
    if not 0 < version < 2**32:
        raise StoreError(f"{name}: versions are 1 to {2**32 - 1}, not {version}")
    number, segments = digest(name), layout.in_place(value)
    questions = [_put(number, index, segment, version) for index, segment in enumerate(segments)]
    for answer in (yield Step(questions, f"{name}: the acknowledgements of version {version}")):
        _acknowledged(name, answer)


def segments_of(length: int) -> int:
    """Return the number of cells that a recorded value of a length needs."""
    return 1 + Preamble(Form.IN_PLACE, length, 0).further


def _further(name: int, preamble: Preamble) -> list[Message]:
    holder = name if preamble.form is Form.IN_PLACE else preamble.hash
    return [_interest(holder, segment) for segment in range(1, preamble.further + 1)]


def _interest(name: int, segment: int) -> Message:
    return Message(Kind.INTEREST, name, segment, content=_ROOM)


def _together(preamble: Preamble, first: Message, further: Sequence[Message]) -> bytes | None:
    """Return the value, None if a part is missing or of another version."""
    if any(answer.kind is Kind.NACK for answer in further):
        return None
    if preamble.form is Form.IN_PLACE and any(answer.version != first.version for answer in further):
        return None
    return preamble.joined([first.content, *(answer.content for answer in further)])


def _put(name: int, segment: int, content: bytes, version: int = 0, freshness_ms: int = 0) -> Message:
    return Message(Kind.PUT, name, segment, version=version, freshness_ms=freshness_ms, content=content)


def _acknowledged(name: str, answer: Message) -> int:
    if answer.kind is Kind.NACK:
        raise _refused(name, answer)
    return answer.version


def _refused(name: str, answer: Message) -> StoreError:
    match answer.reason:
        case Reason.ABSENT:
            return AbsentError(f"{name}: there is no content of that name")
        case Reason.FORBIDDEN:
            return ForbiddenError(f"{name}: this host may not write it")
        case Reason.FULL:
            return FullError(f"{name}: the producer has no room for it: its disk or a quota is full")
        case Reason.STALE:
            return StaleError(f"{name}: version {answer.version} is stored, which is not older", version=answer.version)
        case _:
            return StoreError(f"{name}: refused ({answer.reason.name})")
