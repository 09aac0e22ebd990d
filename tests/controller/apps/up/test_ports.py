"""Metrics ports of `millrace up`: documented, on loopback, and another one where one is taken."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from msgspec.structs import replace

from controller.apps.up.ports import MetricsPorts, Reservations, is_free
from controller.apps.up.settings import BalanceSection, CentreSection, UpSettings
from controller.network.daemon_settings import MetricsSettings as ControllerMetrics
from controller.workloads.centres.settings import MetricsSettings as CentreMetrics

SETTINGS = UpSettings(
    topology="leaf-spine", balance=BalanceSection(), centres={name: CentreSection() for name in ("a", "b", "c")}
)


def ports_of(settings: UpSettings) -> dict[str, int | None]:
    names = ("fabric", "collector", "paths", "controller", "api", "scheduler", "placement", "balance")
    sections = {name: getattr(settings, name) for name in names}
    sections |= {f"centre-{name}": section for name, section in settings.centres.items()}
    return {name: None if section.metrics is None else section.metrics.port for name, section in sections.items()}


def machine(*taken: int) -> MetricsPorts:
    """Return the chooser of a machine on which some ports are taken."""
    used = set(taken)

    def take(_address: str, port: int) -> bool:
        is_new = port not in used
        used.add(port)
        return is_new

    return MetricsPorts(take)


def test_every_daemon_has_the_port_of_the_page() -> None:
    settings, lines = machine().choose(SETTINGS)
    page = (Path(__file__).parents[4] / "docs/network/metrics.md").read_text(encoding="utf-8")
    documented = {name: int(port) for name, port in re.findall(r"^\| `([a-z]+)` \| (\d+)", page, re.MULTILINE)}
    first, *others = (documented.pop("centre"), 9480, 9481)
    assert ports_of(settings) == documented | dict(
        zip(("centre-a", "centre-b", "centre-c"), (first, *others), strict=True)
    )
    assert lines == ()


def test_taken_port_gives_way_to_a_later_hundred() -> None:
    ports = machine(9477, 9577, 9469, 9480)
    settings, lines = ports.choose(SETTINGS)
    chosen = ports_of(settings)
    assert (chosen["collector"], chosen["paths"]) == (9677, 9473)
    assert [chosen[f"centre-{name}"] for name in "abc"] == [9481, 9482, 9483]
    assert lines == ("collector: metrics at port 9677, as 9477 is taken",)
    # A reload keeps them, and gives a new centre the next one.
    more = replace(SETTINGS, centres={"z": CentreSection(), **SETTINGS.centres})
    again, lines = ports.choose(more)
    assert ports_of(again) == chosen | {"centre-z": 9484}
    assert lines == ()


def test_ports_of_the_settings_stay_as_they_are() -> None:
    stated = replace(
        SETTINGS,
        collector=replace(SETTINGS.collector, metrics=None),
        controller=replace(SETTINGS.controller, metrics=ControllerMetrics(port=0)),
        centres={"a": CentreSection(), "b": CentreSection(metrics=CentreMetrics(port=9573))},
    )
    settings, _ = machine(9573, 9473).choose(stated)
    chosen = ports_of(settings)
    assert (chosen["collector"], chosen["controller"], chosen["centre-b"]) == (None, 0, 9573)
    assert chosen["paths"] == 9673, "what a daemon has by the settings is no other's"


def test_port_is_reserved_before_its_daemon_listens() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.listen()
        first, second = Reservations(), Reservations()
        assert not first.take("127.0.0.1", port)
        assert is_free("127.0.0.1", port) is False
    try:
        assert first.take("127.0.0.1", port)
        assert not second.take("127.0.0.1", port)
        first.close()
        assert second.take("127.0.0.1", port)
    finally:
        first.close()
        second.close()


def test_address_that_is_none_is_left_to_its_daemon() -> None:
    assert is_free("plain:no host", 9477)
