"""`millrace pod` against a running server and a node that answers."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import Place, SyncApiClient
from controller.apiserver.registry.placements import Binding, BindingRequest, NewDecision
from controller.apiserver.resources import Decision, Metadata, Node, Pod
from controller.apiserver.resources.decision import DecisionSpec, Outcome, Refusal, Score
from controller.apiserver.resources.hardware import Device, DeviceLimit, Hardware, Load
from controller.apiserver.resources.node import DeviceLoad, NodeSpec, NodeStatus
from controller.apiserver.resources.operator_devices import OperatorDevice
from dataplane.topology.values import DeviceKind
from tests.controller.apps.cli.conftest import Run
from tests.waiting import HANG_S

SCRIPT = """
pod: {name: a, image: busybox, cpu: 1, priority: 3}
---
pod:
  name: b
  containers: [{name: one, image: busybox}, {name: broken, image: busybox}]
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(SCRIPT)
    return tmp_path / "s.yaml"


@pytest.fixture
def bound(served: Place, run: Run, script: Path) -> None:
    """Bind both pods to node h1."""
    run(f"pod apply -f {script}")
    hardware = Hardware(cpu_milli=8000, devices=(Device(number=0, kind=DeviceKind.GPU, model="T4"),))
    spec = DecisionSpec(
        subject_kind="pod",
        subjects=("a",),
        outcome=Outcome.BOUND,
        scheduler="s1",
        reason="h1: 1500 points, 1 of 12 nodes could run it",
        scores=(Score(node="h1", total=1500, parts={"spread": 1500.0}, reasons=("spread: it is alone",)),),
        refused=(Refusal(reason="it is not ready", nodes=tuple(f"n{n}" for n in range(11)), policy="ready"),),
        measured=False,
        begun_ns=1_000_000,
        decided_ns=3_000_000,
    )
    with SyncApiClient(served) as client:
        load = Load(busy=0.25, memory_free_bytes=1 << 30, power_w=70)
        client.of(Node).create(
            Node(
                metadata=Metadata(name="h1"),
                spec=NodeSpec(hardware=hardware),
                status=NodeStatus(ready=True, load=load, devices=(DeviceLoad(number=0, load=load),)),
            )
        )
        client.bind(
            BindingRequest(
                bindings=(Binding(pod="a", node="h1"), Binding(pod="b", node="h1")),
                decision=NewDecision(name="a-1", spec=spec),
            )
        )


def test_a_script_is_applied_once(served: Place, run: Run, script: Path) -> None:
    assert run(f"pod apply -f {script} --dry-run") == ("pod a would be created\npod b would be created\n", "")
    assert run(f"pod apply -f {script}") == ("pod a is created\npod b is created\n", "")
    assert run(f"pod apply -f {script}") == ("pod a is unchanged\npod b is unchanged\n", "")
    changed = SCRIPT.replace("priority: 3", "priority: 4, profile: packed")
    assert run("pod apply -f -", changed) == ("pod a is changed: priority, profile\npod b is unchanged\n", "")
    with SyncApiClient(served) as client:
        assert client.of(Pod).get("a").spec.priority == 4


def test_immutable_change_is_reported_and_not_written(served: Place, run: Run, script: Path, bound: None) -> None:
    changed = SCRIPT.replace("cpu: 1, priority: 3", "cpu: 2, priority: 5").replace("name: one", "name: two")
    out, err = run("pod apply -f -", changed + "---\npod: {name: c, image: x}\n")
    assert out == ""
    assert err.splitlines() == [
        (
            "millrace: <stdin>:2: pod a: its request cannot change while it is on node h1, which was chosen on "
            "that basis: delete it first (millrace pod delete a)"
        ),
        (
            "millrace: <stdin>:4: pod b: its containers cannot change while it is on node h1, which was chosen on "
            "that basis: delete it first (millrace pod delete b); nothing was written"
        ),
    ]
    assert run("pod show c")[1] == "millrace: there is no Pod c\n"
    only = SCRIPT.replace("priority: 3", "priority: 5")
    assert run("pod apply -f -", only)[0] == "pod a is changed: priority\npod b is unchanged\n"
    assert run("pod apply -f -", "pod: {name: x}") == ("", "millrace: <stdin>:1: pod: needs `image` or `bundle`\n")


def test_waiting_has_an_end(run: Run, script: Path) -> None:
    out, err = run(f"pod apply -f {script} --wait --timeout 0.3")
    assert out == "pod a is created\npod b is created\n"
    assert err.splitlines()[-1] == "millrace: not running after 0.3 s: a is pending, b is pending"


def test_devices_of_a_pods_operators_are_shown(served: Place, run: Run, bound: None) -> None:
    assert "operators run on" not in run("pod show a")[0]
    computes = "pod: {name: c, image: x, operators: [{name: product, operator: gemm}]}\n"
    assert run("pod apply -f -", computes)[0] == "pod c is created\n"
    chosen = (OperatorDevice(operator="product", device=DeviceKind.CPU),)
    with SyncApiClient(served) as client:
        client.bind(BindingRequest(bindings=(Binding(pod="c", node="h1", operator_devices=chosen),)))
    assert '{"product": "cpu"}' in run("pod show c")[0]
    # The node reports how a share is enforced, if it is.
    with SyncApiClient(served) as client:
        pod = client.of(Pod).get("c")
        limits = (DeviceLimit(number=0, reason="no daemon"), DeviceLimit(number=1))
        client.of(Pod).replace_status(replace(pod, status=replace(pod.status, device_limits=limits)))
    shown = " ".join(run("pod show c")[0].replace("│", " ").split())
    assert "shares 0: admitted, not enforced: no daemon; 1: enforced by MPS" in shown
    assert "name: product\n    operator: gemm\n" in run("pod show c -o script")[0]


def test_pods_are_listed_shown_and_deleted(run: Run, bound: None) -> None:
    rows = json.loads(run("pod list -f json")[0])
    assert [(row["name"], row["phase"], row["ready"], row["node"]) for row in rows] == [
        ("a", "bound", "0/1", "h1"), ("b", "bound", "0/2", "h1"),
    ]  # fmt: skip
    assert json.loads(run("pod list --node h2 -f json")[0]) == []
    shown = run("pod show a")[0]
    assert "priority: 3" in shown
    assert "h1" in shown
    assert run("pod show a -o script")[0] == "pod:\n  name: a\n  image: busybox\n  cpu: 1\n  priority: 3\n"
    assert json.loads(run("pod show a -o json")[0])["spec"]["priority"] == 3
    assert run("pod delete a x") == ("pod a is being deleted\n", "millrace: there is no Pod x\n")
    assert json.loads(run("pod list -f json")[0])[0]["phase"] == "deleting"


def test_why_lists_every_decision_node_by_node(run: Run, bound: None) -> None:
    output = run("pod explain a")[0]
    assert output.startswith("a is bound on h1\n")
    assert "bound by s1, profile default, in 2.0 ms\nh1: 1500 points, 1 of 12 nodes could run it\n" in output
    assert "network figures were nominal" in output
    assert "it is alone" in output
    assert "n0 n1 n2 n3 n4 n5 n6 n7 and 3 more" in output
    (row,) = json.loads(run("pod explain a -f json")[0])
    assert row["refused"][0]["nodes"] == [f"n{n}" for n in range(11)]
    assert run("pod explain b")[0].splitlines()[1].startswith("no decision yet")
    assert run("pod explain x") == ("", "millrace: there is no Pod x\n")


def test_item_9_device_of_a_location_is_in_words(run: Run) -> None:
    run("pod apply -f -", "pod: {name: c, image: x, location: {device_kind: npu, device: 1}}")
    brought = "its location brings a device of kind npu"
    assert brought in run("pod show c")[0]
    lines = run("pod explain c")[0].splitlines()
    assert lines[1:3] == ["its manifest sets device 1, device_kind npu", brought]


def test_reason_of_a_refusal_is_shown_once(served: Place, run: Run) -> None:
    run("pod apply -f -", "pod: {name: c, image: x}")
    reason = "none of 1 nodes: 1 by fits"
    with SyncApiClient(served) as client:
        pod = client.of(Pod).get("c")
        spec = DecisionSpec(subject_kind="pod", subjects=("c",), outcome=Outcome.REFUSED, reason=reason)
        client.of(Decision).create(Decision(metadata=Metadata(name="c-1"), spec=spec))
        client.of(Pod).replace_status(replace(pod, status=replace(pod.status, reasons=(reason, "h1 was silent"))))
    assert json.loads(run("pod list -f json")[0])[0]["reasons"] == f"{reason}; h1 was silent"
    output = run("pod explain c")[0]
    assert output.startswith("c is pending: h1 was silent\n")
    assert output.count(reason) == 1


def test_loads_of_nodes_devices_and_pods_are_shown(run: Run, bound: None) -> None:
    seen = json.loads(run("pod top --once --json")[0])
    assert [(row["node"], row["busy %"], row["free GiB"], row["pods"]) for row in seen["nodes"]] == [
        ("h1", 25.0, 1.0, 2)
    ]
    assert [(row["device"], row["model"], row["watts"]) for row in seen["devices"]] == [(0, "T4", 70)]
    assert [row["pod"] for row in seen["pods"]] == ["a", "b"]
    assert json.loads(run("pod top --once --format json")[0]).keys() == seen.keys()
    assert "T4" in run("pod top --once")[0]


def test_logs_are_shown_on_both_streams(run: Run, bound: None) -> None:
    assert run("pod logs a") == ("line 0\nline 1\nline 2\n", "line 3\n")
    assert run("pod logs a --tail 2 -f") == ("line 2\n", "line 3\n")
    assert run("pod logs b") == ("", "millrace: Pod b has several containers, name one: one, broken\n")
    assert run("pod logs b -c broken") == ("", "millrace: container broken has no log\n")
    assert run("pod logs b -c x") == ("", "millrace: Pod b has no container x; it has one, broken\n")
    run("pod apply -f -", "pod: {name: c, image: x}")
    assert run("pod logs c") == ("", "millrace: Pod c is on no node: it is pending\n")


def test_a_command_hands_on_its_input_and_its_exit_status(served: Place, bound: None) -> None:
    command = [sys.executable, "-m", "controller.apps.cli", "pod", "exec", "-i", "a", "sh", "-c", "x"]
    environ = {**os.environ, "MILLRACE_API": served.address}
    done = subprocess.run(command, input=b"hi", env=environ, capture_output=True, timeout=HANG_S, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"sh -c x\r\ngot 68 69\r\n", b"", 7)
    done = subprocess.run(
        [*command[:5], "-t", "a", "sh"], env=environ, capture_output=True, timeout=HANG_S, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (
        b"", b"millrace: -t requires -i and a terminal as standard input\n", 1,
    )  # fmt: skip


def test_terminal_is_raw_and_its_size_is_sent(served: Place, bound: None) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    command = [
        "setsid",
        "--ctty",
        "--wait",
        sys.executable,
        "-m",
        "controller.apps.cli",
        "pod",
        "exec",
        "-it",
        "a",
        "sh",
    ]
    environ = {**os.environ, "MILLRACE_API": served.address}
    environ.pop("LINES", None)
    environ.pop("COLUMNS", None)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        _read_until(ours, b"sh on a terminal\r\n")
        os.write(ours, b"\x03")  # Ctrl-C goes to the command
        _read_until(ours, b"got 03\r\n")
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
        _read_until(ours, b"50x132\r\n")
        os.write(ours, b"\x04")
        assert process.wait(HANG_S) == 7
    assert termios.tcgetattr(theirs)[:4] == before[:4]
    os.close(ours)
    os.close(theirs)


def _read_until(descriptor: int, wanted: bytes) -> None:
    output = b""
    while wanted not in output:
        output += os.read(descriptor, 1000)
