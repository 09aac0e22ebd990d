"""Each exercise of p4lang's tutorials does the same with our switch as with bmv2 (docs/start/drop-in.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.soak.tutorials import BMV2, EXERCISES, MILLRACE, Bench, bench, has_bmv2, lacking

pytestmark = [pytest.mark.slow, pytest.mark.root, pytest.mark.bmv2, pytest.mark.p4c]


@pytest.fixture(scope="module")
def made() -> Iterator[Bench]:
    missing = lacking() or (None if has_bmv2() else "simple_switch_grpc on the PATH")
    if missing is not None:
        pytest.skip(f"needs {missing}")
    with bench() as running:
        yield running


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", EXERCISES)
def test_the_same_with_ours_as_with_bmv2(made: Bench, name: str) -> None:
    assert made.run(name, MILLRACE) == made.run(name, BMV2)
