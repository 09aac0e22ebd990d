"""`millrace ports` against a switch's own gNMI server, and against something else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.common.errors import ControllerError
from dataplane.clock import MonotonicClock
from dataplane.switch.gnmi import GnmiCore, GnmiService
from dataplane.switch.p4runtime.core import P4RuntimeCore
from dataplane.switch.p4runtime.server import P4RuntimeServer
from dataplane.switch.ports.states import HelloSettings, OperStatus
from dataplane.switch.switch import PortSettings, Switch

runner = CliRunner()


class Served:
    """Return a switch of two ports and its address."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix:{folder / 's1.sock'}"
        self.switch = Switch(1, [PortSettings(1, 10_000_000), PortSettings(2)], MonotonicClock())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    beside = [GnmiService(GnmiCore(made.switch))]
    with P4RuntimeServer(P4RuntimeCore(made.switch), [made.address], beside=beside):
        yield made


def ask(*arguments: str) -> str:
    done = runner.invoke(app, ["ports", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def problem(*arguments: str) -> str:
    with pytest.raises(ControllerError) as caught:
        ask(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_show_lists_ports_and_hellos(served: Served) -> None:
    served.switch.set_hello(2, HelloSettings())
    served.switch.set_oper(1, OperStatus.LOWER_LAYER_DOWN)
    first, second = json.loads(ask("show", served.address, "--format", "json"))
    assert (first["port"], first["oper"], first["Mbit/s"], first["hello"]) == (1, "LOWER_LAYER_DOWN", "10", None)
    assert (second["oper"], second["hello"], second["cause"]) == ("UP", "DOWN", None)


def test_set_takes_a_port_out_of_use_and_back(served: Served) -> None:
    ask("set", served.address, "2", "down")
    assert not served.switch.port_states()[2].admin_up
    ask("set", served.address, "2", "up")
    assert served.switch.port_states()[2].admin_up
    assert runner.invoke(app, ["ports", "set", served.address, "2", "sideways"]).exit_code == 2
    text = problem("set", served.address, "9", "up")
    assert text.endswith("/interfaces/interface[name=9]/config: there is no such interface")


def test_watch_writes_lines_for_programs(served: Served) -> None:
    command = [sys.executable, "-u", "-m", "controller.apps.cli", "ports", "watch", served.address, "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as watching:
        assert watching.stdout is not None
        ports = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
    assert [(port["port"], port["admin"], port["hello"]) for port in ports] == [(1, "up", None), (2, "up", None)]


def test_watch_prints_changes(served: Served) -> None:
    command = [sys.executable, "-u", "-m", "controller.apps.cli", "ports", "watch", served.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as watching:
        assert watching.stdout is not None
        first = [watching.stdout.readline().split()[:4] for _ in range(2)]
        served.switch.set_oper(2, OperStatus.DOWN)
        changed = watching.stdout.readline().split()[:4]
        watching.send_signal(signal.SIGINT)
        assert watching.wait() == 130
    assert first == [["1", "1", "up", "UP"], ["2", "2", "up", "UP"]]
    assert changed == ["2", "2", "up", "DOWN"]


def test_impossible_query_is_one_line(served: Served, tmp_path: Path) -> None:
    assert problem("show", f"unix:{tmp_path / 'none.sock'}").endswith("cannot connect: No such file or directory")
    assert "neither unix:PATH nor HOST:PORT" in problem("show", "nowhere")
    bare = f"unix:{tmp_path / 'bare.sock'}"
    with P4RuntimeServer(P4RuntimeCore(Switch(1, [PortSettings(1)], MonotonicClock())), [bare]):
        assert problem("show", bare) == f"switch at {bare}: it does not serve gNMI"
