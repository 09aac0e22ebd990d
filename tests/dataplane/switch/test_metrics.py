"""Prometheus metrics of a switch: ports, drops by name, what is running."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

from dataplane.errors import SwitchError
from dataplane.switch.arguments import command_line, parse_arguments
from dataplane.switch.drivers import make_driver
from dataplane.switch.metrics import serve


def test_a_switch_without_a_program_is_scraped(tmp_path: Path) -> None:
    words = ["--no-p4", "--device-id", "7", "--pipeline", "interpreter", "-i", f"1@unix:{tmp_path}/p1"]
    settings = parse_arguments([*words, "--metrics-port", "0"])
    assert parse_arguments(command_line(settings)) == settings
    with ExitStack() as stack:
        peer = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        peer.bind(str(tmp_path / "p1"))
        driver = make_driver(stack, settings)
        where = serve(0, driver, lambda: {"digest_full": 3}, stack)
        with urllib.request.urlopen(where, timeout=20) as answer:
            lines = set(answer.read().decode().splitlines())
        with pytest.raises(SwitchError, match=r"--metrics-port: 127\.0\.0\.1:70000: ports are numbers"):
            serve(70_000, driver, dict, stack)
    port = f'port="1",device="unix:{tmp_path}/p1"'
    expected = {
        f"millrace_switch_port_received_frames_total{{{','.join(sorted(port.split(',')))}}} 0.0",
        'millrace_switch_drops_total{port="",reason="digest_full"} 3.0',
        'millrace_switch_info{device_id="7",program=""} 1.0',
    }
    assert expected <= lines
    assert any(line.startswith("millrace_switch_port_up{") for line in lines)
