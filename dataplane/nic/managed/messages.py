"""Messages between a process that polls queues and its node's manager: JSON, each in one packet of SOCK_SEQPACKET.

    process                                 manager
    Hello: its name                     ->
                                        <-  Welcome, or the reason why not
    Report: its queues, every period    ->
                                        <-  Order: another mode
    Outcome: the modes in force         ->
    Claim: it wants queues of a device  ->
                                        <-  Grant: which ones, or the reason why none

Numbers match orders and outcomes, claims and grants. Whoever gets anything else closes the connection.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from dataplane.malformed import MALFORMED

VERSION: Final = 1
MOST_BYTES: Final = 128 << 10
"""Maximum length of a message."""
MOST_QUEUES: Final = 256
"""Maximum number of queues in a report; `left_out` counts those beyond."""

Line = Annotated[str, Meta(max_length=500)]
Device = Annotated[str, Meta(min_length=1, max_length=127)]
Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
QueueNumber = Annotated[int, Meta(ge=0, le=65_535)]
ModeName: TypeAlias = Literal["waiting", "polling", "hybrid"]
M = TypeVar("M")
KindName: TypeAlias = Literal["packet_v2", "packet_v3", "xdp", "dpdk"]
GrantKind: TypeAlias = Literal["packet_v2", "packet_v3", "xdp"]


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag=str.lower):
    """A message; `type` says which."""


class Hello(_Message, frozen=True):
    """A process introduces itself; the kernel says which one it is."""

    program: Annotated[str, Meta(min_length=1, max_length=100)]
    version: int = VERSION


class Welcome(_Message, frozen=True):
    """Answer to a Hello; `is_own`: the process is in the network namespace whose queues this manager grants."""

    node: Line = ""
    period_s: Annotated[float, Meta(gt=0, le=60)] = 1.0
    is_own: bool = False
    refusal: Line = ""


class QueueState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A polled queue of a device and its counters, frames and bytes without FCS, since it was opened.

    index: of the device in its network namespace, 0 if the kernel knows no such device. thread: kernel id of the
    polling thread, 0 if unknown. modes: those that may be set. dropped: frames that reached the device but not the
    process, and those that the device did not send. polls: of the thread, over all its queues; null: not counted.
    """

    device: Device
    index: Count
    queue: QueueNumber
    kind: KindName
    thread: Count
    mode: ModeName
    modes: Annotated[tuple[ModeName, ...], Meta(max_length=3)] = ()
    received: Count = 0
    received_bytes: Count = 0
    sent: Count = 0
    sent_bytes: Count = 0
    dropped: Count = 0
    polls: Count | None = None
    empty_polls: Count | None = None


class Report(_Message, frozen=True):
    """All polled queues of a process, or the first of them."""

    queues: Annotated[tuple[QueueState, ...], Meta(max_length=MOST_QUEUES)]
    left_out: Count = 0


class Order(_Message, frozen=True):
    """A request for another mode of a queue's thread, or of all threads on a device (`queue` null)."""

    number: Count
    device: Device
    queue: QueueNumber | None
    mode: ModeName


class Outcome(_Message, frozen=True):
    """Answer to an order: the queues with the modes now in force, or the reason why nothing was changed."""

    number: Count
    queues: Annotated[tuple[QueueState, ...], Meta(max_length=MOST_QUEUES)] = ()
    refusal: Line = ""


class Claim(_Message, frozen=True):
    """A request for queues of a device, which are held until the connection or the process ends."""

    number: Count
    device: Device
    index: Count
    job: Annotated[str, Meta(max_length=100)] = ""


class Grant(_Message, frozen=True):
    """Answer to a claim: the transport and queues, or the reason why there are none."""

    number: Count
    kind: GrantKind = "packet_v2"
    queues: Annotated[tuple[QueueNumber, ...], Meta(max_length=MOST_QUEUES)] = ()
    refusal: Line = ""


FromProcess: TypeAlias = Hello | Report | Outcome | Claim
FromManager: TypeAlias = Welcome | Order | Grant
_OF_PROCESS: Final[msgspec.json.Decoder[FromProcess]] = msgspec.json.Decoder(FromProcess)
_OF_MANAGER: Final[msgspec.json.Decoder[FromManager]] = msgspec.json.Decoder(FromManager)


def encode(message: FromProcess | FromManager) -> bytes:
    """Return a message as a packet."""
    return msgspec.json.encode(message)


def decode_from_process(packet: bytes) -> FromProcess:
    """Return a process's message; raise ValueError for anything else, and for packets that are too long."""
    return _decode(packet, _OF_PROCESS)


def decode_from_manager(packet: bytes) -> FromManager:
    """Return a manager's message; raise ValueError for anything else, and for packets that are too long."""
    return _decode(packet, _OF_MANAGER)


def _decode(packet: bytes, decoder: msgspec.json.Decoder[M]) -> M:
    if len(packet) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES} bytes")
    try:
        return decoder.decode(packet)
    except MALFORMED as error:
        raise ValueError(str(error)) from None
