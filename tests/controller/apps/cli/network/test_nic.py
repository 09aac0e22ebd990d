"""`millrace nic`: properties of a device, and lines that count received packets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.network.nic import rows
from dataplane.errors import PortError
from dataplane.fabric.kernel import namespaces
from dataplane.nic import Drop, NicSettings, memory_pair, open_nic
from tests.network_namespace import network_namespace

FRAME = bytes(60)
runner = CliRunner()


@pytest.fixture
def inside() -> Iterator[Callable[..., str]]:
    """Run a command in a namespace with a veth pair; reraise its exception."""
    with network_namespace(("here", "there"), queues=2) as namespace:

        def run(*arguments: str) -> str:
            done = namespaces.call(namespace, lambda: runner.invoke(app, list(arguments), catch_exceptions=False))
            assert done.exit_code == 0, done.output
            return done.output

        yield run


@pytest.mark.root
def test_show_describes_the_device(inside: Callable[..., str]) -> None:
    told = inside("nic", "show", "here")
    assert re.search(r"device +here \(number \d+\), driver veth", told)
    assert re.search(r"MTU +1500 bytes", told)
    assert re.search(r"state +up, with link", told)
    assert re.search(r"queues +2 receive, 2 transmit, 0 both", told)
    assert re.search(r"time stamps +software", told)


@pytest.mark.root
@pytest.mark.parametrize("io", ["ring", "throughput"])
@pytest.mark.parametrize("mode", ["hybrid", "waiting", "polling", "throughput"])
def test_watch_prints_a_line_a_second_and_ends(inside: Callable[..., str], mode: str, io: str) -> None:
    as_json = json.loads(inside("nic", "watch", "here", "--mode", mode, "--seconds", "0.01", "--format", "json"))
    assert {"packets/s", "missed"} < as_json.keys()
    told = inside("nic", "watch", "here", "--mode", mode, "--io", io, "--seconds", "0.05").splitlines()
    assert told[0].split()[:3] == ["second", "packets/s", "Mbit/s"]
    assert [line.split()[1:5] for line in told[1:]] == [["0", "0.0", "0", told[1].split()[4]]]


@pytest.mark.root
def test_watch_serves_metrics(inside: Callable[..., str]) -> None:
    told = inside("nic", "watch", "here", "--seconds", "0.05", "--metrics-port", "0")
    assert re.match(r"metrics at http://127\.0\.0\.1:\d+/metrics\n", told)


@pytest.mark.parametrize("command", ["show", "watch"])
def test_a_missing_device_is_one_line(command: str) -> None:
    with pytest.raises(PortError, match=r"^interface nothing0: no such device[^\n]*$"):
        runner.invoke(app, ["nic", command, "nothing0"], catch_exceptions=False)


def test_lines_are_differences_over_the_time_that_passed() -> None:
    near, far = memory_pair(("near", "far"))
    with far, open_nic(near, NicSettings(threads=0)) as nic:
        nic.classifier.set_default(Drop())
        now = 0.0

        def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds
            far.send([FRAME] * round(100 * seconds))
            while nic.step(round(now * 1e9)):
                pass

        told = list(rows(nic.read_statistics, 2.5, lambda: now, sleep))
    assert [(line[0], line[1], line[3]) for line in told] == [
        ("1.0", "100", "0"),
        ("2.0", "100", "0"),
        ("2.5", "100", "0"),
    ]
