"""Ten seconds of requests and datagrams between namespaces; tests/benchmarks/payload.py has half an hour."""

from __future__ import annotations

import os

import pytest

from tests.payloads.kernel import Talk, kernel_fabric


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_requests_and_datagrams_between_namespaces() -> None:
    with kernel_fabric() as fabric:
        counts = Talk(fabric, 1).run(10, requests_per_s=400, datagrams_per_s=400)
    assert counts.tcp_requests > 0
    assert counts.datagrams > 0
    assert (counts.tcp_stalls, counts.tcp_changed, counts.changed, counts.lost) == (0, 0, 0, 0)
