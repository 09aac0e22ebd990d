"""The job service behind gRPC: round trips of rows, and one line for foreign messages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from controller.network.aggregation.service.messages import JOB, JobRow, MemberRow, check_end, check_removal
from dataplane.allreduce.jobs import jobs_pb2 as pb
from dataplane.rpc.errors import MessageError
from dataplane.topology.values import LinkKey
from tests.controller.network.aggregation.service.serving_jobs import run_service
from tests.logged import stacks

NAMES = st.text(st.characters(categories=["L", "N"]), max_size=6)
SMALL = st.integers(0, 2**32 - 1)
NS = st.integers(0, 2**63 - 1)
ROWS = st.builds(
    JobRow,
    NAMES,
    st.none() | SMALL,
    NAMES,
    SMALL,
    st.lists(st.builds(MemberRow, NAMES, NAMES, NS, st.none() | NAMES), max_size=3).map(tuple),
    st.none() | SMALL,
    SMALL,
    SMALL,
    st.lists(NAMES, max_size=3).map(tuple),
    NAMES,
    st.none() | NS,
    st.lists(st.builds(LinkKey, NAMES, NAMES), max_size=3).map(tuple),
)


@given(ROWS)
def test_a_row_arrives_as_it_was(row: JobRow) -> None:
    assert JOB.value(pb.Job.FromString(JOB.message(row).SerializeToString())) == row


@pytest.mark.parametrize(
    ("check", "request_", "reason"),
    [
        (check_end, pb.EndJobRequest(reason="r"), "job: a name has 1 to 256 printable characters"),
        (check_end, pb.EndJobRequest(job="j", reason="r" * 1001), "reason: a text has at most 1000 printable"),
        (check_end, pb.EndJobRequest(job="j", reason="a\nb"), "reason: a text has at most 1000 printable"),
        (check_removal, pb.RemoveWorkerRequest(job="j"), "host: a name has 1 to 256 printable characters"),
    ],
)
def test_a_request_that_cannot_be_is_refused(check: Callable[[Any], None], request_: Message, reason: str) -> None:
    with pytest.raises(MessageError, match=f"^{reason}"):
        check(request_)


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x92\x01\xc0", b"\x7a\x00", b"\x0a\x01\xff"])
def test_a_foreign_body_is_refused_in_one_line(tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with run_service(tmp_path) as here, grpc.insecure_channel(here.address) as channel:
        for method in pb.DESCRIPTOR.services_by_name["Jobs"].methods:
            path = f"/{method.containing_service.full_name}/{method.name}"
            stream: Any = channel.stream_stream(path, None, None)(iter([body]))
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
            error: Any = caught.value
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert "\n" not in error.details()
    assert stacks(caplog) == []


def test_undecodable_worker_message_is_refused_and_others_go_on(tmp_path: Path) -> None:
    with run_service(tmp_path) as here, grpc.insecure_channel(here.address) as channel:
        hello = pb.WorkerMessage(
            hello=pb.Hello(job="j", host="h1", token="t", workers=2, udp_port=9, deadline_ns=10**10)
        )
        messages = iter([hello.SerializeToString(), b"\xff"])
        stream = channel.stream_stream("/millrace.jobs.v1.Jobs/Attend", None, None)(messages)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == "a millrace.jobs.v1.WorkerMessage does not decode"
        assert len(here.together("h1", "h2", job="j")) == 2
