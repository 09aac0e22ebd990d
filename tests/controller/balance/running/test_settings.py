"""Settings of one unit's loop: invalid ones are refused in a line with file, line and key."""

from __future__ import annotations

import pytest

from controller.balance.rules import IntervalRule, PlatformRule
from controller.balance.running.settings import RunSettings
from dataplane.config import loads
from dataplane.errors import ConfigError

LEAST = """
unit: u0
bus: {pcie: "0000:c1:00.0"}
load: {device: "0000:c1:00.0"}
"""


def test_minimal_settings_move_nothing_and_use_the_table() -> None:
    settings = loads(LEAST, RunSettings)
    assert settings.rule == IntervalRule()
    assert settings.levers.cpu_quota is None
    assert loads(f"{LEAST}platform: {{}}\n", RunSettings).rule == PlatformRule()


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("platform: {}\ntable: {}", "set table or platform, not both"),
        ("interval: 3s", r"silence.stale must be at least two intervals, 6 s"),
        ("levers: {cpu_quota: {group: /a, kind: precision}}", "a quota must be sub-units or frequency"),
        (
            "levers: {cpu_quota: {group: /a}, gpu_instances: {device: '0000:c1:00.0'}}",
            "at most one sub-units lever",
        ),
        ("levers: {cpu_qouta: {group: /a}}", "did you mean `cpu_quota`?"),
        ("silence: {stale: 9s, release: 5s}", "0 < stale <= release required"),
        ("control: {pid: {kp: -1}}", "<text>:5: control.pid.kp"),
    ],
)
def test_impossible_settings_are_refused(more: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(f"{LEAST}{more}\n", RunSettings)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bus", "problem"),
    [
        ("{}", "exactly one of interface, telemetry, pcie, program needed, got none"),
        ("{pcie: '0000:c1:00.0', interface: {interface: e0}}", "got interface and pcie"),
        ("{pcie: 'c1:00.0'}", "bus.pcie: expected `str` matching regex"),
        ("{interface: {interface: lo, rate: 1 Gbit/s}}", "bus.interface: lo cannot be a bus: loopback has no link"),
        ("{interface: {interface: e0, rate: fast}}", "bus.interface: 'fast' is not a rate such as '10 Gbit/s'"),
    ],
)
def test_a_bus_is_one_of_its_kinds(bus: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(LEAST.replace('{pcie: "0000:c1:00.0"}', bus), RunSettings)
    assert problem in str(caught.value)
