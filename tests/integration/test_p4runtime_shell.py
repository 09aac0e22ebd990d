"""p4runtime-shell, in the environment that its pins demand, drives the built-in switch."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compiled_fabric import compile_fabric
from tests.waiting import HANG_S

ROOT = Path(__file__).parents[2]
SHELL_PYTHON = ROOT / ".venv-shell" / "bin" / "python"
P4INFO, PROGRAM = ROOT / "p4/build/fabric.p4info.txtpb", ROOT / "p4/build/fabric.json"


@pytest.fixture
def switch_address() -> Iterator[str]:
    compile_fabric()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "dataplane.switch.process", "--no-p4", "--device-id", "7"]
    command += ["--", "--grpc-server-addr", address, "--cpu-port", "255"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "ready" in line:
                break
        else:
            pytest.fail(f"the switch ended with {process.wait()} before it was ready")
        yield address
        process.terminate()
        process.communicate(timeout=10)


@pytest.mark.skipif(not SHELL_PYTHON.exists(), reason=f"no p4runtime-shell: {SHELL_PYTHON} is made by `make test`")
def test_shell_drives_the_built_in_switch(switch_address: str) -> None:
    script = Path(__file__).with_name("shell_session.py")
    done = subprocess.run(
        [SHELL_PYTHON, script, switch_address, P4INFO, PROGRAM],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert (seen["alone"], seen["beside a controller"], seen["stated"]) == ([7, "0,1"], [7, "0,0"], [7, "0,5"])
    assert "with election id 1: this shell only reads; ELECTION=0,2 takes over from it" in done.stdout
    assert seen["routes"] == ["24"]
    assert seen["flow_ports"] == [4]
    assert "ALREADY_EXISTS" in seen["second_insert"]
    assert seen["flows_left"] == 0
    assert seen["counter"] == [0]
    assert seen["clones"] == [250]
