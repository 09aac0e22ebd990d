"""Samples, gains and changes that cannot be are refused, by name."""

from __future__ import annotations

import math

import pytest

from controller.balance.errors import BalanceError, GainsError, SampleError
from controller.balance.values import STEPS, Change, Form, Gains, Sample
from controller.common.errors import ControllerError


def test_error_is_bus_occupancy_less_load() -> None:
    assert Sample(0.0, bus=0.5, load=0.25).error == 0.25
    assert Sample(0.0, bus=0.25, load=0.5).error == -0.25


@pytest.mark.parametrize("bus", [-0.01, 1.01, math.nan, math.inf])
def test_occupancy_outside_0_to_1_is_refused_and_names_the_unit(bus: float) -> None:
    with pytest.raises(SampleError, match=f"^unit gpu0: bus occupancy {bus:g} is not between 0 and 1$"):
        Sample(0.0, bus=bus, load=0.5, unit="gpu0")


@pytest.mark.parametrize("load", [-0.01, 1.01, math.nan, -math.inf])
def test_load_outside_0_to_1_is_refused_and_names_the_unit(load: float) -> None:
    with pytest.raises(SampleError, match=f"^unit gpu0: load {load:g} is not between 0 and 1$"):
        Sample(0.0, bus=0.5, load=load, unit="gpu0")


def test_a_sample_without_a_time_is_refused() -> None:
    with pytest.raises(SampleError, match=r"^unit gpu0: its time of nan s is not finite$"):
        Sample(math.nan, bus=0.5, load=0.5, unit="gpu0")


@pytest.mark.parametrize("gains", [(-1.0, 0.0, 0.0), (1.0, math.nan, 0.0), (1.0, 0.0, math.inf)])
def test_gains_below_0_or_not_finite_are_refused(gains: tuple[float, float, float]) -> None:
    with pytest.raises(GainsError, match=r"^k[pid] is .*, not a finite number >= 0$"):
        Gains(*gains)


@pytest.mark.parametrize(
    ("form", "acting"),
    [(Form.P, (1, 0, 0)), (Form.PI, (1, 2, 0)), (Form.PD, (1, 0, 3)), (Form.PID, (1, 2, 3))],
)
def test_a_form_has_the_terms_of_its_name(form: Form, acting: tuple[float, float, float]) -> None:
    assert Gains(1, 2, 3).of(form) == Gains(*acting)


def test_steps_of_precision_are_in_the_specified_order() -> None:
    assert [str(step) for step in STEPS] == ["int4", "int8", "int16", "int32", "fp16", "fp32", "fp64"]


def test_a_change_of_nothing_keeps() -> None:
    assert Change().keeps
    assert not Change(sub_units=-1).keeps


def test_errors_of_balancing_are_errors_of_the_controller() -> None:
    assert issubclass(SampleError, BalanceError)
    assert issubclass(BalanceError, ControllerError)
