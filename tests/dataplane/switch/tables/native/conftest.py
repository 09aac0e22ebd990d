"""Benches that are released when a test ends, with nothing left allocated."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dataplane.switch.tables.native.harness import MakeBench, NativeBench, Program


@pytest.fixture
def make() -> Iterator[MakeBench]:
    """Return a factory of benches."""
    benches: list[NativeBench] = []

    def make_bench(program: Program) -> NativeBench:
        benches.append(NativeBench(program))
        return benches[-1]

    yield make_bench
    for bench in benches:
        bench.release()
