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
    value = UPWARD.value(message)
    if isinstance(value, Hello):
        for name in ("job", "host", "token"):
            checked_name(getattr(value, name), name)
    return value


def decode_downward(data: bytes) -> Downward:
    """Decode a message of the service; raise AllReduceError for an unknown layout or an impossible job."""
    try:
        value = DOWNWARD.value(parse(pb.ServiceMessage, data))
        if isinstance(value, Admitted | View):
            _check_job(value)
    except MessageError as error:
        raise AllReduceError(f"this version does not understand the job service: {error}") from error
    return value


def _check_job(job: Admitted | View) -> None:
    """Raise MessageError for values beyond the header's fields, or a zero divisor."""
    most = job.capacity if isinstance(job, Admitted) else MOST_WORKERS
    _check("number", job.number, 1, _NUMBERS - 1)
    _check("epoch", job.epoch, 0, _NUMBERS - 1)
    if isinstance(job, Admitted):
        _check("capacity", job.capacity, 1, MOST_WORKERS)
        _check("first_item", job.first_item, 0, _ITEMS - 1)
    _check("contributors", job.contributors, 1, most)


def _check(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise MessageError(f"{name} is {value}, not {least} to {most}")
