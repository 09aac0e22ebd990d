"""Reasons for failed calls, in words."""

from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from dataplane.rpc.call_errors import reason_of


@pytest.mark.parametrize(
    ("code", "details", "reason"),
    [
        ("NOT_FOUND", "there is no\nsuch flow", "there is no such flow"),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNKNOWN: x: Refused",
            "cannot connect: Refused",
        ),
        ("UNAVAILABLE", "errors resolving far:1: [field:hostname lookup error:x]", "there is no host far:1"),
        ("UNAVAILABLE", "Socket closed", "UNAVAILABLE: Socket closed"),
        ("UNIMPLEMENTED", "Method not found!", "another service answers there, or another version"),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "no answer in time"),
        ("INTERNAL", "", "INTERNAL: "),
    ],
)
def test_a_failure_is_one_line_in_words(code: str, details: str, reason: str) -> None:
    error = AioRpcError(grpc.StatusCode[code], Metadata(), Metadata(), details, None)
    assert reason_of(error) == reason
