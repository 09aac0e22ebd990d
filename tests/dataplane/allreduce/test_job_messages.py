"""Messages between workers and the job service: round trips, and foreign ones refused in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.allreduce.jobs.codec import DOWNWARD, UPWARD, decode_downward, encode, upward_of
from dataplane.allreduce.jobs.messages import (
    Admitted,
    Arrived,
    Barrier,
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
from dataplane.rpc.messages import parse_request

NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
HOSTS = st.lists(NAMES, max_size=4).map(tuple)
SMALL = st.integers(0, 2**32 - 1)
COUNTS = st.integers(0, 2**64 - 1)
NS = st.integers(-(2**63), 2**63 - 1)
HELLOS = st.builds(
    Hello,
    NAMES,
    NAMES,
    NAMES,
    SMALL,
    SMALL,
    NS,
    st.none() | SMALL,
    st.none() | SMALL,
    st.booleans(),
    st.none() | SMALL,
    st.none() | st.tuples(NAMES, SMALL),
)
UPWARDS = st.one_of(
    HELLOS,
    st.just(Heartbeat()),
    st.builds(Arrived, COUNTS, COUNTS),
    st.builds(Finished, COUNTS, COUNTS, COUNTS),
    st.builds(Leave, COUNTS),
    st.builds(Completed, COUNTS),
)
NONCES = st.integers(0, 2**64 - 1)
BARRIERS = st.builds(Barrier, COUNTS, st.none() | COUNTS, NS)
LEAVING = st.none() | COUNTS
NUMBERS, EPOCHS = st.integers(1, 2**16 - 1), st.integers(0, 2**16 - 1)
ADMITTED = st.builds(
    Admitted,
    number=NUMBERS,
    aggregator=NAMES,
    window=SMALL,
    capacity=st.integers(4096, 2**16 - 1),
    epoch=EPOCHS,
    first_item=SMALL,
    first_count=COUNTS,
    members=HOSTS,
    heartbeat_ns=NS,
    patience_ns=NS,
    root=NAMES,
    newcomers=HOSTS,
    nonce=NONCES,
    contributors=st.integers(1, 4096),
)
DOWNWARDS = st.one_of(
    st.builds(Waiting, HOSTS, SMALL),
    ADMITTED,
    st.builds(View, NUMBERS, NAMES, NAMES, EPOCHS, HOSTS, st.none() | BARRIERS, HOSTS, LEAVING, NONCES, NUMBERS),
    st.builds(Refused, NAMES),
    st.builds(Ended, NAMES, st.booleans()),
)


@given(UPWARDS)
def test_what_a_worker_says_arrives_as_it_was(message: Upward) -> None:
    assert upward_of(parse_request(pb.WorkerMessage, encode(message))) == message


@given(DOWNWARDS)
def test_what_the_service_says_arrives_as_it_was(message: Downward) -> None:
    assert decode_downward(DOWNWARD.message(message).SerializeToString()) == message


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"number": 0}, "number is 0, not 1 to 65535"),
        ({"number": 1 << 16}, "number is 65536"),
        ({"epoch": 1 << 16}, "epoch is 65536, not 0 to 65535"),
        ({"capacity": 0}, "capacity is 0"),
        ({"capacity": 1 << 16}, "capacity is 65536"),
        ({"contributors": 0}, "contributors is 0, not 1 to 4"),
        ({"contributors": 5}, "contributors is 5, not 1 to 4"),
        ({"first_item": 1 << 32}, "first_item is 4294967296"),
    ],
    ids=str,
)
def test_a_job_that_no_switch_can_have_is_refused(wrong: dict[str, Any], message: str) -> None:
    right = Admitted(7, "10.0.0.1", 64, 4, 1, 0, 0, ("h1",), 1, 1, "10.0.0.1", (), 2**64 - 1, 4)
    assert decode_downward(DOWNWARD.message(right).SerializeToString()) == right
    assert str(right.nonce) not in repr(right)
    with pytest.raises(AllReduceError, match=f"does not understand the job service: {message}"):
        decode_downward(DOWNWARD.message(replace(right, **wrong)).SerializeToString())


@given(st.binary(max_size=80))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    messages = []
    try:
        assert upward_of(parse_request(pb.WorkerMessage, data)) is not None
    except MessageError as error:
        messages.append(str(error))
    try:
        assert decode_downward(data) is not None
    except AllReduceError as error:
        messages.append(str(error))
    assert "\n" not in "".join(messages)


@given(st.data(), UPWARDS)
def test_no_truncation_is_taken_for_something_else(data: st.DataObject, message: Upward) -> None:
    whole = encode(message)
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with pytest.raises(MessageError):
        upward_of(parse_request(pb.WorkerMessage, part))


def test_a_message_that_says_nothing_is_refused() -> None:
    with pytest.raises(
        MessageError, match=r"^a millrace\.jobs\.v1\.WorkerMessage holds nothing that this version knows$"
    ):
        upward_of(pb.WorkerMessage())
    with pytest.raises(
        AllReduceError, match=r"does not understand the job service: a millrace\.jobs\.v1\.ServiceMessage holds"
    ):
        decode_downward(b"\x7a\x00")


@pytest.mark.parametrize("name", ["job", "host", "token"])
@pytest.mark.parametrize("value", ["", "x" * 257, "a\nb"])
def test_names_of_a_worker_have_a_bound(name: str, value: str) -> None:
    hello = pb.Hello(job="j", host="h", token="t")
    setattr(hello, name, value)
    with pytest.raises(MessageError, match=f"^{name}: a name has 1 to 256 printable characters$"):
        upward_of(pb.WorkerMessage(hello=hello))


def test_what_no_message_can_say_is_an_error_of_the_worker() -> None:
    with pytest.raises(AllReduceError, match=r"millrace\.jobs\.v1\.Completed: .*out of range"):
        encode(Completed(-1))
    assert UPWARD.message(Completed(0)) == pb.WorkerMessage(completed=pb.Completed())
