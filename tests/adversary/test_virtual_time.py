"""Thousands of forged and damaged datagrams in virtual time, and a run without them: nothing that counts differs."""

from __future__ import annotations

from dataclasses import fields

import pytest

from tests.adversary.attacks import Kind
from tests.adversary.world import Outcome, World
from tests.examples import examples

FORGED = examples(2_100)


@pytest.fixture(scope="module")
def calm() -> Outcome:
    return World().play(0)


def test_nothing_forged_counts(calm: Outcome) -> None:
    world = World()
    besieged = world.play(FORGED)
    assert set(world.forged) == set(Kind)
    for field in fields(Outcome):
        assert getattr(besieged, field.name) == getattr(calm, field.name), field.name
