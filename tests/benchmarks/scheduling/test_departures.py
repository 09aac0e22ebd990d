"""Each departure that is measured changes something, to settings that can be."""

from __future__ import annotations

import pytest

from tests.benchmarks.scheduling.cases import CASES
from tests.benchmarks.scheduling.departures import DEPARTURES, Departure


@pytest.mark.parametrize("departure", DEPARTURES, ids=lambda departure: departure.name)
def test_departure_changes_learning_and_trials_of_bursty_case(departure: Departure) -> None:
    case = CASES["bursty"]
    changed = departure.of(case)
    changed.agent("tokens", 0).check()
    assert (changed.learning == case.learning) == (changed.tried == case.tried) == (not departure.changes)
