"""The part of the benchmark that explains packets, at its shortest."""

from __future__ import annotations

from tests.benchmarks.first.trace import measure


def test_packets_are_explained_and_counted() -> None:
    rates = measure(quick=True)["trace_pps"]
    assert rates is not None
    assert rates > 0
