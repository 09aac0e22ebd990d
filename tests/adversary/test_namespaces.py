"""An attacker next to real daemons, switches and workers: everything runs as if it were not there."""

from __future__ import annotations

import os

import pytest

from tests.adversary.attacks import Kind
from tests.adversary.siege import besieging
from tests.examples import examples

pytestmark = pytest.mark.root

FORGED = examples(1_050)


def test_nothing_forged_counts() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with besieging() as siege:
        siege.attack(FORGED // 4, siege.target())  # what grows once has grown
        assert siege.play(FORGED).effects == []
        assert set(siege.forged) == set(Kind)
