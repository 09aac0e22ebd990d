"""Whole controllers: origins of gains, changes of gains, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from controller.balance.control.controller import (
    Controller,
    ControllerState,
    ControlSettings,
    Output,
    Scheme,
    least_stable,
    reachable,
    worst_margin,
)
from controller.balance.control.expert import ExpertRule
from controller.balance.control.fuzzy.adaptation import FuzzySettings, Method
from controller.balance.control.linear import LinearPlant
from controller.balance.control.pid import PidSettings
from controller.balance.control.stability import margin_of
from controller.balance.errors import GainsError
from controller.balance.values import Form, Gains, Sample
from dataplane.config import loads
from dataplane.errors import ConfigError

PID = PidSettings(form=Form.PID, kp=0.5, ki=0.02, kd=0.1)


def sample(time_s: float, error: float) -> Sample:
    """Return a sample of an error."""
    return Sample(time_s, bus=max(error, 0.0), load=max(-error, 0.0), unit="gpu0")


def run(controller: Controller, errors: Iterable[float]) -> tuple[ControllerState, list[Output]]:
    """Return the state after errors once per second, and the outputs."""
    state, outputs = controller.start(), []
    for time_s, error in enumerate(errors):
        state, output = controller.step(state, sample(time_s, error))
        outputs.append(output)
    return state, outputs


def test_fixed_gains_stay() -> None:
    _, outputs = run(Controller(ControlSettings(pid=PID)), [0.6, 0.3, 0.1])
    assert {output.gains for output in outputs} == {Gains(0.5, 0.02, 0.1)}


def test_the_expert_rule_gives_gains_by_error_and_change() -> None:
    rule = ExpertRule()
    controller = Controller(ControlSettings(pid=PID, scheme=Scheme.EXPERT, expert=rule))
    _, outputs = run(controller, [0.6, 0.3, 0.1, 0.1])
    assert [output.gains for output in outputs] == [rule.of_row(row) for row in range(4)]
    assert [output.change for output in outputs] == pytest.approx([0.0, -0.3, -0.2, 0.0])


@pytest.mark.parametrize("method", list(Method))
def test_fuzzy_gains_begin_at_the_expert_rules_and_are_adapted(method: Method) -> None:
    settings = ControlSettings(pid=PID, scheme=Scheme.FUZZY, fuzzy=FuzzySettings(method=method))
    _, outputs = run(Controller(settings), [0.6, 0.3, 0.1, 0.0, 0.0])
    start = settings.rule.gains(0.0, 0.0)
    assert outputs[-1].gains.kp == pytest.approx(start.kp)
    assert outputs[-1].gains.ki == pytest.approx(1.5 * start.ki)
    assert len({output.gains for output in outputs}) == 5


def test_terms_that_a_form_lacks_stay_out_of_adapted_gains() -> None:
    settings = ControlSettings(pid=PidSettings(form=Form.PD, kp=0.5, kd=0.1), scheme=Scheme.FUZZY)
    assert all(gains.ki == 0.0 for gains in reachable(settings))


@pytest.mark.parametrize("form", [Form.PI, Form.PID])
def test_a_change_of_gains_is_bumpless(form: Form) -> None:
    controller = Controller(ControlSettings(pid=PidSettings(form=form, kp=0.5, ki=0.02, kd=0.1)))
    state, outputs = run(controller, [0.3] * 5)
    after = PidSettings(form=form, kp=1.5, ki=0.05, kd=0.4)
    other, state = controller.changed(state, ControlSettings(pid=after))
    _, first = other.step(state, sample(5.0, 0.3))
    assert first.u - outputs[-1].u == pytest.approx(0.05 * 0.3)  # the integral adds this in any case
    without = Controller(ControlSettings(pid=after))
    assert without.step(run(controller, [0.3] * 5)[0], sample(5.0, 0.3))[1].u - outputs[-1].u > 0.3


def test_another_target_gives_no_kick() -> None:
    """The derivative acts on the measurement, and the integral takes the rest of the step."""
    controller = Controller(ControlSettings(pid=PID))
    state, outputs = run(controller, [0.3] * 5)
    other, state = controller.changed(
        state, ControlSettings(pid=PidSettings(form=Form.PID, kp=0.5, ki=0.02, kd=0.1, target=0.1))
    )
    _, first = other.step(state, sample(5.0, 0.3))
    assert first.u - outputs[-1].u == pytest.approx(0.02 * 0.2)


def test_a_form_without_an_integral_steps_to_its_new_gains() -> None:
    controller = Controller(ControlSettings(pid=PidSettings(form=Form.P, kp=0.5)))
    state, _ = run(controller, [0.3] * 5)
    other, state = controller.changed(state, ControlSettings(pid=PidSettings(form=Form.P, kp=1.0)))
    assert other.step(state, sample(5.0, 0.3))[1].u == pytest.approx(0.3)


@pytest.mark.parametrize("form", [Form.PI, Form.PID])
def test_an_integral_that_is_new_takes_the_output_over(form: Form) -> None:
    controller = Controller(ControlSettings(pid=PidSettings(form=Form.P, kp=0.5)))
    state, outputs = run(controller, [0.3] * 5)
    other, state = controller.changed(state, ControlSettings(pid=PidSettings(form=form, kp=0.1, ki=0.01, kd=0.1)))
    assert other.step(state, sample(5.0, 0.3))[1].u - outputs[-1].u == pytest.approx(0.01 * 0.3)


def test_other_limits_are_kept_at_once() -> None:
    controller = Controller(ControlSettings(pid=PidSettings(form=Form.PI, kp=1.0, ki=0.1)))
    state, outputs = run(controller, [0.6] * 20)
    assert outputs[-1].u == 1.0
    narrow = PidSettings(form=Form.PI, kp=1.0, ki=0.1, high=0.4)
    other, state = controller.changed(state, ControlSettings(pid=narrow))
    assert other.step(state, sample(20.0, 0.6))[1].u == 0.4


def test_unused_controller_takes_new_settings_as_they_are() -> None:
    controller = Controller(ControlSettings(pid=PID))
    other, state = controller.changed(controller.start(), ControlSettings())
    assert other == Controller(ControlSettings())
    assert state == ControllerState()


def all_schemes() -> Iterator[ControlSettings]:
    """Yield settings of each scheme."""
    for scheme in Scheme:
        yield ControlSettings(pid=PID, scheme=scheme)


@pytest.mark.parametrize("settings", list(all_schemes()), ids=lambda settings: settings.scheme)
def test_unstable_gains_of_any_scheme_are_refused_with_margin(settings: ControlSettings) -> None:
    assert worst_margin(settings) is None  # the plant is not stated
    slow = LinearPlant(gain=1.0, lag_samples=2.0, delay_samples=6)
    with pytest.raises(
        GainsError, match=r"unstable on a plant of gain 1, lag 2 samples, delay 6, .* times these gains"
    ):
        ControlSettings(pid=settings.pid, scheme=settings.scheme, plant=slow)


def test_the_reported_margin_is_that_of_the_least_stable_gains() -> None:
    plant = LinearPlant(gain=1.0)
    margins = [worst_margin(ControlSettings(pid=PID, scheme=scheme, plant=plant)) for scheme in Scheme]
    rooms = [margin.stable_to for margin in margins if margin is not None and margin.stable_to is not None]
    assert len(rooms) == 3
    assert rooms[2] < rooms[0]  # fuzzy reaches higher gains than the fixed ones


def test_settings_are_read_from_a_file() -> None:
    text = "scheme: fuzzy\npid: {form: PID, kp: 0.4, ki: 0.02, kd: 0.1, period: 5s}\nfuzzy: {method: mamdani}\n"
    settings = loads(text, ControlSettings)
    assert settings.fuzzy.method is Method.MAMDANI
    assert settings.pid.period_s == 5.0


def test_unstable_gains_in_a_file_are_refused_by_the_file() -> None:
    text = "pid: {kp: 3}\nplant: {gain: 1}\n"
    with pytest.raises(ConfigError, match=r"^x\.yaml:1: kp 3, ki 0, kd 0 are unstable on a plant of gain 1, "):
        loads(text, ControlSettings, file="x.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pid: {kp: .inf}\n", r"x\.yaml:1: pid: kp is inf, not a finite number >= 0"),
        ("scheme: fuzzy\npid: {kp: 0}\n", r"x\.yaml:1: expert rule: kp2 must be below kp1 and kp3, got 0"),
        ("expert:\n  near: 0.7\n", r"x\.yaml:1: expert: expert rule: e1 > e2 > 0 required, got 0\.5 and 0\.7"),
        ("plant: {gain: 0}\n", r"x\.yaml:1: plant: the plant's gain is 0, not a finite number above 0"),
    ],
)
def test_impossible_gains_and_plants_are_refused_with_their_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^{says}$"):
        loads(text, ControlSettings, file="x.yaml")


@pytest.mark.parametrize("delay", [0, 3])
def test_least_stable_gains_have_the_smallest_reachable_margin(delay: int) -> None:
    plant = LinearPlant(gain=0.2, delay_samples=delay)
    settings = ControlSettings(pid=PidSettings(form=Form.PID, kp=1.0, ki=0.05, kd=0.5), scheme=Scheme.FUZZY)
    some = list(dict.fromkeys(reachable(settings)))[::5]
    rooms = [margin_of(gains, plant).stable_to for gains in some]
    least = margin_of(least_stable(settings, plant), plant).stable_to
    assert least is not None
    assert least <= 1.05 * min(room for room in rooms if room is not None)


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"pid\.kq: unknown key"):
        loads("pid: {kq: 3}\n", ControlSettings)
