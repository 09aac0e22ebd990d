"""Every case for a few seconds: sockets and frames between namespaces; tests/benchmarks/payload.py has half an hour."""

from __future__ import annotations

import os

import pytest

from tests.payloads.rounds import KERNEL_CASES, kernel_rounds


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_every_case_between_namespaces() -> None:
    rounds = list(kernel_rounds(1, seconds=2.0 * len(KERNEL_CASES), frames=128, rate=200.0))
    assert len(rounds) == len(KERNEL_CASES)
    for outcome in rounds:
        assert outcome.verdict.changed == 0, f"{outcome.name}\n" + "\n".join(outcome.verdict.examples)
    counts = rounds[-1].counts
    assert counts.tcp_requests > 0
    assert counts.datagrams > 0
    assert counts.faults == (0, 0, 0, 0)
