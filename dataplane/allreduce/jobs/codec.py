"""Encoding and decoding of messages between workers and the job service; workers' messages are validated here."""

from __future__ import annotations

from typing import Final

from dataplane.allreduce.formats import MOST_WORKERS
from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.allreduce.jobs.messages import (
    Admitted,
    Arrived,
    Completed,
    Downward,
    Ended,
    Finished,
    Heartbeat,
    Hello,
    Leave,
    Refused,
    Upward,
    View,
    Waiting,
)
from dataplane.errors import AllReduceError
from dataplane.rpc.errors import MessageError
from dataplane.rpc.messages import checked_name, parse
from dataplane.rpc.values import Choice
from dataplane.wire.aggregation import ITEM_BITS

UPWARD: Final[Choice[Upward, pb.WorkerMessage]] = Choice(
    {
        "hello": Hello,
        "heartbeat": Heartbeat,
        "arrived": Arrived,
        "finished": Finished,
        "leave": Leave,
        "completed": Completed,
    },
    pb.WorkerMessage,
)
DOWNWARD: Final[Choice[Downward, pb.ServiceMessage]] = Choice(
    {"waiting": Waiting, "admitted": Admitted, "view": View, "refused": Refused, "ended": Ended}, pb.ServiceMessage
)


_NUMBERS: Final = 1 << 16
_ITEMS: Final = 1 << ITEM_BITS


def encode(message: Upward) -> bytes:
    """Encode a worker's message; raise AllReduceError for one that cannot be encoded."""
    try:
        return UPWARD.message(message).SerializeToString()
    except MessageError as error:
        raise AllReduceError(str(error)) from error


def upward_of(message: pb.WorkerMessage) -> Upward:
    """Convert and validate a worker's message; raise MessageError."""
    said = UPWARD.value(message)
    if isinstance(said, Hello):
        for name in ("job", "host", "token"):
            checked_name(getattr(said, name), name)
    return said


def decode_downward(data: bytes) -> Downward:
    """Decode a message of the service; raise AllReduceError for an unknown layout or an impossible job."""
    try:
        said = DOWNWARD.value(parse(pb.ServiceMessage, data))
        if isinstance(said, Admitted | View):
            _check_job(said)
    except MessageError as error:
        raise AllReduceError(f"the job service says what this version does not understand: {error}") from error
    return said


def _check_job(said: Admitted | View) -> None:
    """Raise MessageError for values beyond the header's fields, or a zero divisor."""
    most = said.capacity if isinstance(said, Admitted) else MOST_WORKERS
    _check("number", said.number, 1, _NUMBERS - 1)
    _check("epoch", said.epoch, 0, _NUMBERS - 1)
    if isinstance(said, Admitted):
        _check("capacity", said.capacity, 1, MOST_WORKERS)
        _check("first_item", said.first_item, 0, _ITEMS - 1)
    _check("contributors", said.contributors, 1, most)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise MessageError(f"{name} is {value}, not {least} to {most}")
