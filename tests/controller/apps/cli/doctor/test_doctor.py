"""`millrace doctor`: each probe finds what is there, and says what is not."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.doctor import kernel, machine, packages, programs
from controller.apps.cli.doctor.values import Finding, Purpose, State
from dataplane.extras import EXTRA_OF

PURPOSE = Purpose("thing", "tests", "get it")


def script(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o700)
    return path


def test_a_program_is_run_not_only_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    path = script(tmp_path, "works", "exit 0")
    script(tmp_path, "fails", "echo first; echo 'no   licence' >&2; exit 3")
    assert programs.started(PURPOSE, ("works",)) == PURPOSE.ok(str(path))
    assert programs.started(PURPOSE, ("fails",)) == PURPOSE.limited(f"{tmp_path}/fails: no licence")
    assert programs.started(PURPOSE, ("absent-program",)) == PURPOSE.missing("no absent-program on the PATH")


def test_a_runc_that_starts_no_container_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes a specification, as the real one does, and fails to run it."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    specification = json.dumps({"mounts": [], "process": {}, "root": {}})
    script(
        tmp_path, "runc", f"case $1 in spec) echo '{specification}' > config.json;; *) echo refused >&2; exit 1;; esac"
    )
    finding = programs.runc(tmp_path)
    assert finding.state is State.LIMITED
    assert finding.text.endswith("runc: refused")


def test_ports_are_tried_by_binding() -> None:
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for opened in (tcp, udp):
            opened.bind(("127.0.0.1", 0))
        tcp.listen()
        wanted = [
            ("switch", socket.SOCK_STREAM, "127.0.0.1", tcp.getsockname()[1]),
            ("reports", socket.SOCK_DGRAM, "127.0.0.1", udp.getsockname()[1]),
        ]
        finding = machine.ports(wanted)
        assert finding.state is State.LIMITED
        assert finding.text.count("Address already in use") == 2
    assert machine.ports(wanted).state is State.OK


def test_a_socket_without_a_listener_is_a_remain(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as living:
        dead.bind(str(tmp_path / "dead.sock"))
        living.bind(str(tmp_path / "living.sock"))
        living.listen()
        assert machine.stale_sockets([tmp_path, tmp_path / "absent"]) == [f"nobody listens at {tmp_path}/dead.sock"]


def test_packages_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "broken_package.py").write_text("raise OSError('libx.so: not there')\n", encoding="utf-8")
    (tmp_path / "crashing_package.py").write_text("import os; os.abort()\n", encoding="utf-8")
    assert packages.import_problems(["json", "absent_package", "broken_package"]) == {
        "absent_package": "no absent_package",
        "broken_package": "OSError: libx.so: not there",
    }
    assert packages.import_problems(["json", "crashing_package"]) == {
        "crashing_package": "Python ended with status -6 while importing it"
    }


def test_every_extra_has_a_use() -> None:
    assert packages.USES.keys() == set(EXTRA_OF.values())


def test_congestion_controls_are_set_on_a_socket(tmp_path: Path) -> None:
    available = tmp_path / "available"
    available.write_text("reno no-such-control\n", encoding="ascii")
    finding = kernel.congestion(available)
    assert finding == kernel.CONGESTION.limited("usable: reno; not cubic")


def test_memory_is_locked_or_refused() -> None:
    assert kernel.memlock(4096).state is State.OK
    assert kernel.memlock(1 << 46).state is State.LIMITED


@pytest.mark.root
def test_namespaces_and_af_xdp_are_tried(tmp_path: Path) -> None:
    before = set(Path("/sys/class/net").iterdir())
    findings = {finding.purpose: finding for finding in kernel.probe()}
    for purpose in (kernel.NAMESPACES, kernel.PACKETS, kernel.XDP, kernel.MEMLOCK):
        assert findings[purpose].state is State.OK, findings[purpose]
    assert set(Path("/sys/class/net").iterdir()) == before


def fake(monkeypatch: pytest.MonkeyPatch, findings: Sequence[Finding]) -> None:
    """Let the parts of the doctor find this, so that a test costs no probes."""
    monkeypatch.setattr(packages, "probe", lambda: iter(findings))
    for part in (kernel, machine, programs):
        monkeypatch.setattr(part, "probe", lambda: iter(()))


def test_only_what_the_base_needs_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    required = Purpose("base", "everything", "install it", is_required=True)
    fake(monkeypatch, [PURPOSE.missing("absent"), required.ok("there")])
    done = CliRunner().invoke(app, ["doctor", "--format", "json"])
    assert done.exit_code == 0
    assert [row["state"] for row in json.loads(done.stdout)] == ["missing", "ok"]
    assert [row["remedy"] for row in json.loads(done.stdout)] == ["get it", ""]
    fake(monkeypatch, [PURPOSE.ok("there"), required.missing("absent")])
    done = CliRunner().invoke(app, ["doctor", "--problems"])
    assert done.exit_code == 1
    assert "1 ok, 0 limited, 1 missing. Required: base." in done.stdout
    assert "there" not in done.stdout
