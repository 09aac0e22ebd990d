"""bmv2's own shell on our switch, and the switch's process with --thrift-port."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dataplane.switch.runtime_api.api import serve
from tests.dataplane.switch.runtime_api.conftest import Client

if TYPE_CHECKING:
    from dataplane.switch.switch import Switch

ROOT = Path(__file__).parents[4]
DEADLINE_S = 60

COMMANDS = """
table_set_default keyless forward 3
table_add exact_table forward 0a:00:00:00:00:01 1 => 2
table_add exact_table forward 0a:00:00:00:00:01 1 => 3
table_add mixed_table forward 0a:00:00:00:00:01&&&ff:ff:ff:ff:ff:ff 1->7 5&&&0x1ff 0a:00:00:00:00:00/8 1 => 2 10
table_dump mixed_table
act_prof_create_member ecmp forward 2
act_prof_create_group ecmp
act_prof_add_member_to_group ecmp 0 0
table_indirect_add_with_group selector_table 0a:00:00:00:00:00/8 => 0
table_dump selector_table
counter_read hits 0
register_write cells 2 77
register_read cells
meter_set_rates port_meter 1 0.001:10 0.002:20
meter_get_rates port_meter 1
mc_mgrp_create 1
mc_node_create 7 1 2
mc_node_associate 1 0
mc_dump
mirroring_add 5 2
mirroring_get 5
set_queue_depth 20
set_queue_rate 100
switch_info
show_ports
"""
ANSWERS = (
    "Entry has been added with handle 0",
    "Invalid table operation (DUPLICATE_ENTRY)",
    "RANGE 0001 -> 0007",
    "Priority: 10",
    "Index: group(0)",
    "hits[0]= (0 bytes, 0 packets)",
    "cells= 0, 0, 77, 0",
    "1: info rate = 0.002, burst size = 20",
    "(L1h=0, rid=7) -> (ports=[1, 2], lags=[])",
    "MirroringSessionConfig(port=2, mgid=None)",
    "device_id : 5",
)


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of bmv2's shell: its sources next to its executable, and thrift's output for its declarations."""
    switch, compiler = shutil.which("simple_switch_grpc"), shutil.which("thrift")
    if switch is None or compiler is None:
        pytest.skip("simple_switch_grpc and thrift (thrift-compiler) are not on the PATH")
    source = Path(switch).parents[1] / "src" / "behavioral-model"
    if not source.is_dir():
        pytest.skip(f"bmv2's sources are not at {source}")
    made = tmp_path_factory.mktemp("thrift")
    target = source / "targets" / "simple_switch"
    for file in (*source.glob("thrift_src/*.thrift"), target / "thrift" / "simple_switch.thrift"):
        subprocess.run([compiler, "--gen", "py", "-out", str(made), str(file)], check=True, timeout=DEADLINE_S)
    path = os.pathsep.join(map(str, (made, source / "tools", target)))
    return {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "SHELL_FILE": str(target / "sswitch_CLI.py")}


def test_bmv2s_shell_runs_a_file_of_commands(tools: dict[str, str], switch: Switch) -> None:
    with serve(switch, 0) as port:
        command = [sys.executable, tools["SHELL_FILE"], "--thrift-port", str(port), "--thrift-ip", "127.0.0.1"]
        done = subprocess.run(
            command, input=COMMANDS, capture_output=True, text=True, env=tools, timeout=DEADLINE_S, check=False
        )
    assert not done.stderr.replace("register index omitted, reading entire array", "").strip()
    answered = " ".join(done.stdout.split())
    assert [answer for answer in ANSWERS if answer not in answered] == []
    assert switch.state is not None
    assert switch.state.registers["EntitiesIngress.cells"][2] == 77


def test_the_process_serves_the_port_that_it_is_given(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dataplane.switch.process", "--no-p4", "--thrift-port", "0", "--device-id", "9"]
    command += ["--lifeline-fd", "0", "--", "--grpc-server-addr", f"unix:{tmp_path / 'p4.sock'}"]
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        match = next(filter(None, (re.search(r"Thrift\) on 127\.0\.0\.1:(\d+)", line) for line in process.stderr)))
        with Client(int(match[1])) as client:
            info = client.bm_mgmt_get_info()
        process.communicate(timeout=DEADLINE_S)
    assert (info.device_id, info.thrift_port) == (9, int(match[1]))
    assert process.returncode == 0
