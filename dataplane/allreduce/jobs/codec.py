"""What workers and the job service send each other, as bytes and back; what a worker says is checked here."""

from __future__ import annotations

from typing import Final

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


def encode(message: Upward) -> bytes:
    """Return a worker's message as bytes; raise AllReduceError for what no message can say."""
    try:
        return UPWARD.message(message).SerializeToString()
    except MessageError as error:
        raise AllReduceError(str(error)) from error


def upward_of(message: pb.WorkerMessage) -> Upward:
    """Return what a worker says; raise MessageError."""
    said = UPWARD.value(message)
    if isinstance(said, Hello):
        for name in ("job", "host", "token"):
            checked_name(getattr(said, name), name)
    return said


def decode_downward(data: bytes) -> Downward:
    """Return what the service says; raise AllReduceError for another layout."""
    try:
        return DOWNWARD.value(parse(pb.ServiceMessage, data))
    except MessageError as error:
        raise AllReduceError(f"the job service says what this version does not understand: {error}") from error
