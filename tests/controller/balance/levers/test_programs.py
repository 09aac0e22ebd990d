"""Levers inside a program: autocast for precision, and the batch size."""

from __future__ import annotations

import pytest

from controller.balance.errors import LeverError
from controller.balance.levers.programs import Autocast, BatchSize
from controller.balance.values import Precision


def test_autocast_computes_in_the_precision_of_the_lever() -> None:
    torch = pytest.importorskip("torch")
    lever = Autocast(torch.bfloat16, device_type="cpu")
    left, right = torch.ones(4, 4), torch.ones(4, 4)
    with lever.autocast():
        assert (left @ right).dtype == torch.float32
    assert lever.move(-1).done == -1
    assert lever.precision is Precision.FP16
    with lever.autocast():
        assert (left @ right).dtype == torch.bfloat16
    assert lever.move(-1).reason == "at its limit of 0"
    lever.release()
    with lever.autocast():
        assert (left @ right).dtype == torch.float32


def test_autocast_stays_within_the_applications_limits() -> None:
    lever = Autocast(None, allowed=(Precision.FP32,))
    assert lever.move(-2).left == -2
    with pytest.raises(LeverError, match="autocast supports fp16 and fp32, not int8"):
        Autocast(None, allowed=(Precision.INT8, Precision.FP32))
    with pytest.raises(LeverError, match="the initial precision fp32 is not allowed"):
        Autocast(None, allowed=(Precision.FP16,))


def test_a_batch_doubles_and_halves_between_its_ends() -> None:
    lever = BatchSize(48, low=6, high=200)
    assert (lever.read().low, lever.read().high) == (-3, 2)
    assert lever.move(+1).done == 1
    assert lever.size == 96
    assert lever.move(+2).left == 1
    assert lever.size == 192
    assert lever.move(-9).done == -5
    assert lever.size == 6
    lever.release()
    assert lever.size == 48


def test_a_batch_beyond_its_ends_is_refused() -> None:
    with pytest.raises(LeverError, match="lever batch size: 1 <= low <= size <= high required, got 1, 9 and 8"):
        BatchSize(9, high=8)


def test_steps_of_a_batch_may_be_finer_than_doubling() -> None:
    lever = BatchSize(64, low=32, high=100, per_doubling=4)
    sizes = []
    for _ in range(4):
        lever.move(+1)
        sizes.append(lever.size)
    assert sizes == [76, 91, 91, 91]
    lever.move(-9)
    assert lever.size == 32
    with pytest.raises(LeverError, match="lever batch size: 0 steps per doubling, at least 1 needed"):
        BatchSize(8, high=8, per_doubling=0)
