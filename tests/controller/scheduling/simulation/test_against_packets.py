"""End times of transfers: the flow model against packets through switches with the P4 program."""

from __future__ import annotations

import pytest

from tests.benchmarks.simulating.cases import CASES, Case
from tests.benchmarks.simulating.errors import relative_errors

LARGEST_ERROR = 0.05


@pytest.mark.parametrize(
    ("case", "is_paced"),
    [
        pytest.param(case, is_paced, id=f"{case.name}, {'paced' if is_paced else 'windows'}")
        for case in CASES
        for is_paced in ((False, True) if case.is_one_bottleneck else (True,))
    ],
)
def test_transfers_end_when_packets_do(case: Case, is_paced: bool) -> None:
    errors = relative_errors(case, is_paced=is_paced)
    assert len(errors) == len(case.transfers)
    assert max(errors) < LARGEST_ERROR, errors
