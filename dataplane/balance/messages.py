"""Messages between a program and the loop of its unit: JSON, each in one packet of a SOCK_SEQPACKET socket.

    program                          loop
    Hello: what it offers       ->
                                <-   Welcome, or the reason why not
                                <-   Order: what to change, or nothing
    State: what is in force     ->

The loop asks, the program answers; a number matches both. Whoever gets anything else closes the connection.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

VERSION: Final = 1
MOST_BYTES: Final = 4096
"""Maximum length of a message."""
PRECISIONS: Final = ("int4", "int8", "int16", "int32", "bf16", "fp16", "tf32", "fp32", "fp64")
"""Precisions that a program may offer, from the fastest to the most exact."""
MOST_CONCURRENCY: Final = 100_000

Word = Annotated[str, Meta(min_length=1, max_length=16)]
Line = Annotated[str, Meta(max_length=500)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Concurrency = Annotated[int, Meta(ge=1, le=MOST_CONCURRENCY)]
M = TypeVar("M")


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program's offer: its precisions, its range of concurrency, and where both are now."""

    unit: Annotated[str, Meta(min_length=1, max_length=253)]
    precisions: Annotated[tuple[Word, ...], Meta(min_length=1, max_length=len(PRECISIONS))]
    precision: Word
    concurrency_low: Concurrency
    concurrency_high: Concurrency
    concurrency: Concurrency
    version: int = VERSION

    def __post_init__(self) -> None:
        """Refuse an offer that contradicts itself."""
        unknown = next((precision for precision in self.precisions if precision not in PRECISIONS), None)
        if unknown is not None:
            raise ValueError(f"precisions: {unknown!r} is not one of {', '.join(PRECISIONS)}")
        if len(set(self.precisions)) < len(self.precisions):
            raise ValueError("precisions: duplicate precision")
        if self.precision not in self.precisions:
            raise ValueError(f"precision: {self.precision} is not one of {', '.join(self.precisions)}")
        if not self.concurrency_low <= self.concurrency <= self.concurrency_high:
            ends = f"{self.concurrency_low} to {self.concurrency_high}"
            raise ValueError(f"concurrency: {self.concurrency} is not in {ends}")


class Welcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The loop's answer to an offer: how long its settings hold without an order, or why it is refused."""

    hold_s: Annotated[float, Meta(gt=0, le=1e9)] = 1.0
    refusal: Line = ""


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for the state, after a change of what is not null."""

    number: Count
    precision: Word | None = None
    concurrency: Concurrency | None = None


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings in force from the program's next step on, and the time that it has moved data and computed.

    Times are on the machine's monotonic clock: `moving_ns` counts threads once, `computing_ns` each of them. `refusal`
    says why an order was not followed.
    """

    number: Count
    precision: Word
    concurrency: Concurrency
    now_ns: Count
    moving_ns: Count
    computing_ns: Count
    refusal: Line = ""


def encode(message: Hello | Welcome | Order | State) -> bytes:
    """Return a message as a packet."""
    return msgspec.json.encode(message)


def decode(packet: bytes, kind: type[M]) -> M:
    """Return a packet as a message; raise ValueError if it is none of this kind, or too long."""
    if len(packet) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES} bytes")
    try:
        return msgspec.json.decode(packet, type=kind)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
