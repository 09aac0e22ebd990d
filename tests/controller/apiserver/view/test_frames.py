"""Frames of the page's stream, against what they state."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from controller.apiserver.view import frames
from controller.apiserver.view.frames import Frame

STATES = st.integers(0, 40).flatmap(lambda links: st.tuples(*[hnp.arrays(np.uint8, (3, links))] * 2))


def opened(frame: bytes) -> tuple[int, int, np.ndarray]:
    """Return type, time and bytes of a frame of states."""
    length, kind, time_ns = struct.unpack_from(">IBQ", frame)
    assert length == len(frame) - 4
    return kind, time_ns, np.frombuffer(zlib.decompress(frame[13:]), dtype=np.uint8).reshape(3, -1)


@given(STATES, st.integers(0, 2**63))
def test_state_and_difference_give_the_next_state(states: tuple[np.ndarray, np.ndarray], time_ns: int) -> None:
    before, after = states
    kind, at_ns, whole = opened(frames.full(time_ns, before))
    assert (kind, at_ns) == (Frame.FULL, time_ns)
    kind, _, change = opened(frames.difference(time_ns, after, before))
    assert kind == Frame.DIFFERENCE
    assert (whole + change == after).all()


@given(st.floats(0, 1))
def test_utilisation_is_within_a_500th(share: float) -> None:
    (code,) = frames.utilisation_bytes([share])
    assert abs(code / 250 - share) <= 1 / 500 + 1e-12


@given(st.floats(1e3, 1e12))
def test_delay_is_within_a_sixteenth_of_an_octave(excess_ns: float) -> None:
    (code,) = frames.delay_bytes([excess_ns])
    assert 1 <= code <= 254
    assert abs(math.log2(2 ** ((int(code) - 1) / 8) / (excess_ns / 1000))) <= 1 / 16 + 1e-9


@given(st.floats(1e-9, 1))
def test_loss_is_within_a_sixteenth_of_an_octave(share: float) -> None:
    (code,) = frames.loss_bytes([share])
    assert 1 <= code <= 254
    assert abs(math.log2(2 ** ((int(code) - 254) / 8) / share)) <= 1 / 16 + 1e-9


@pytest.mark.parametrize(
    ("encoded", "value", "code"),
    [
        (frames.utilisation_bytes, math.nan, frames.UNKNOWN_UTILISATION),
        (frames.utilisation_bytes, 1.7, 250),
        (frames.delay_bytes, math.nan, frames.UNKNOWN),
        (frames.delay_bytes, -5e6, 0),
        (frames.delay_bytes, 999.0, 0),
        (frames.delay_bytes, 1e30, 254),
        (frames.loss_bytes, math.nan, frames.UNKNOWN),
        (frames.loss_bytes, 0.0, 0),
        (frames.loss_bytes, 1.0, 254),
        (frames.loss_bytes, 1e-30, 1),
    ],
)
def test_values_at_the_edges(encoded: Callable[[list[float]], np.ndarray], value: float, code: int) -> None:
    assert encoded([value]).tolist() == [code]
