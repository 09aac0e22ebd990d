"""Forged and damaged datagrams in virtual time, and a run without them: nothing that counts differs."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tests.adversary.attacks import Kind
from tests.adversary.comparing import effects, lost
from tests.adversary.world import Outcome, World
from tests.examples import examples

FORGED = examples(700)
DURATION_NS = max(240_000_000, FORGED * 16_000)
"""The attacker's cable carries all it sends; its queue drops none."""


@pytest.fixture(scope="module")
def calm() -> Outcome:
    return World().play(0, DURATION_NS)


def test_nothing_forged_counts(calm: Outcome) -> None:
    world = World()
    besieged = world.play(FORGED, DURATION_NS)
    assert set(world.forged) == set(Kind)
    for field in fields(Outcome):
        assert getattr(besieged, field.name) == getattr(calm, field.name), field.name


def test_datagrams_past_the_edge_show_and_leave_sums_intact(calm: Outcome) -> None:
    world = World()
    world.open_edge()
    besieged = world.play(FORGED, DURATION_NS)
    shown = effects(calm, besieged)
    assert shown["records"] > 100
    assert shown.keys() <= {"records", "known", "late", "repeated"}
    assert lost(calm, besieged) == {}


def test_what_differs_is_counted(calm: Outcome) -> None:
    assert effects(calm, calm) == lost(calm, calm) == {}
    other = replace(calm, moves=2, sums=[b"wrong", *calm.sums[1:]], tables=["a: new"], known=calm.known | {1})
    assert effects(calm, other) == {"moves": 2, "sums": 1, "tables": 1, "known": 1}
    fewer = replace(calm, reads=calm.reads[:-3], received={**calm.received, 0: calm.received[0] - 5})
    assert (effects(calm, fewer), lost(calm, fewer)) == ({}, {"reads": 3, "received": 5})
