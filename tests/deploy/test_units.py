"""Systemd units: they always restart, and the node's has only the rights that containers need."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.security import CAPABILITIES

UNITS = sorted((Path(__file__).parents[2] / "deploy" / "systemd").glob("*.service"))
DANGEROUS = {"CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_BOOT", "CAP_SYS_TIME", "CAP_SYSLOG", "CAP_MAC_ADMIN"}


def sections(unit: Path) -> dict[str, list[tuple[str, str]]]:
    """Return keys and values of each section; keys may repeat."""
    by_name: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            by_name.setdefault(section, []).append((key, value))
    return by_name


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_comes_back_however_often_it_ends(unit: Path) -> None:
    parsed = sections(unit)
    assert ("StartLimitIntervalSec", "0") in parsed["Unit"]
    assert ("Restart", "always") in parsed["Service"]


def test_the_nodes_unit_is_watched_and_narrow() -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == "millrace-node"]
    service = sections(unit)["Service"]
    assert [value for key, value in service if key == "WatchdogSec"] == ["30"]
    granted = {name for key, value in service if key == "CapabilityBoundingSet" for name in value.split()}
    assert set(CAPABILITIES) <= granted
    assert not granted & DANGEROUS
    (forbidden,) = [value for key, value in service if key == "SystemCallFilter"]
    assert {"@module", "@reboot", "@raw-io", "@swap", "@clock"} <= set(forbidden.removeprefix("~").split())
