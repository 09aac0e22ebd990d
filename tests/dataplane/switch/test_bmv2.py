"""simple_switch_grpc as a process: found or refused, started with our settings, stopped."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from dataplane.errors import SwitchError
from dataplane.switch import bmv2
from dataplane.switch.arguments import AttachedPort, SwitchSettings
from dataplane.switch.bmv2 import Bmv2Process
from dataplane.switch.drop_in.shims import install
from dataplane.switch.switch import PortSettings


@pytest.fixture
def fake_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but what the test puts there."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, script: str) -> Path:
    path = folder / bmv2.EXECUTABLE
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_without_bmv2_the_error_says_what_to_do(fake_path: Path) -> None:
    assert not bmv2.is_installed()
    with pytest.raises(SwitchError, match="not on the PATH: install bmv2"):
        Bmv2Process(SwitchSettings(ports=()))


def test_a_shim_of_that_name_is_our_switch_not_bmv2(
    fake_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(fake_path)
    assert not bmv2.is_installed()
    real = put(tmp_path_factory.mktemp("bmv2"), "exit 0")
    monkeypatch.setenv("PATH", f"{fake_path}:{real.parent}")
    assert bmv2.command(SwitchSettings(ports=()))[0] == str(real)


def test_the_command_has_only_what_bmv2_knows(fake_path: Path) -> None:
    path = put(fake_path, "exit 0")
    settings = SwitchSettings(ports=(AttachedPort(PortSettings(1), "veth0"),), device_id=4, ready_file=Path("x"))
    expected = f"{path} --device-id 4 --log-level info -i 1@veth0 --no-p4"
    expected += " -- --grpc-server-addr 127.0.0.1:9559 --cpu-port 255 --priority-queues 8"
    assert bmv2.command(settings) == expected.split()


def test_each_switch_has_its_own_thrift_port_if_built_with_it(fake_path: Path) -> None:
    path = put(fake_path, 'case "$1" in --help) echo "  --thrift-port arg  TCP port of the Thrift server";; esac')
    commands = [bmv2.command(SwitchSettings(ports=())) for _ in range(3)]
    assert all(command[:2] == [str(path), "--thrift-port"] for command in commands)
    ports = {int(command[2]) for command in commands}
    assert 9090 not in ports
    assert all(1024 <= port <= 0xFFFF for port in ports)


@pytest.mark.parametrize("port", [PortSettings(3, rate_bps=10), PortSettings(3, delay_ns=1)])
def test_rates_and_delays_are_refused_unless_taken_off(fake_path: Path, port: PortSettings) -> None:
    put(fake_path, "exit 0")
    settings = SwitchSettings(ports=(AttachedPort(port, "veth0"),))
    with pytest.raises(SwitchError, match="port 3: simple_switch_grpc has no rate"):
        bmv2.command(settings)
    assert "3@veth0" in bmv2.command(bmv2.without_cables(settings))


def test_switch_that_ends_or_stays_silent_is_reported(fake_path: Path) -> None:
    settings = SwitchSettings(ports=(), grpc_address=f"unix:{fake_path}/none.sock")
    put(fake_path, "exit 3")
    with Bmv2Process(settings) as process, pytest.raises(SwitchError, match="exited before it answered on unix:"):
        process.wait_ready()
    put(fake_path, "exec /bin/sleep 60")
    with Bmv2Process(settings) as process, pytest.raises(SwitchError, match="does not answer on unix:"):
        process.wait_ready(0.05)
    with pytest.raises(SwitchError, match="has not been started"):
        process.wait_ready()


@pytest.mark.bmv2
def test_it_answers_and_stops(tmp_path: Path) -> None:
    if not bmv2.is_installed():
        pytest.skip("needs simple_switch_grpc on the PATH")
    settings = SwitchSettings(ports=(), device_id=3, grpc_address=f"unix:{tmp_path}/p4.sock", log_level="off")
    with Bmv2Process(settings) as process:
        process.wait_ready()
        with grpc.insecure_channel(settings.grpc_address) as channel:
            answer = p4r_grpc.P4RuntimeStub(channel).Capabilities(p4r.CapabilitiesRequest(), timeout=10)
        assert answer.p4runtime_api_version
    assert not bmv2.is_listening(settings.grpc_address)
