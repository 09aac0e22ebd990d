"""A core over a switch that is nothing but ports."""

from __future__ import annotations

import pytest

from dataplane.switch.gnmi.core import GnmiCore
from tests.dataplane.switch.gnmi.boards import Board


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def core(board: Board) -> GnmiCore:
    return GnmiCore(board, epoch_ns=board.epoch_ns)
