"""`millrace fabric up`, `list`, `exec` and `down`: a kernel fabric from a shell, removed without a trace."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.network.fabric import next_steps
from controller.apps.up.command import FabricDaemons
from controller.apps.up.errors import UpError
from controller.apps.up.settings import UpSettings
from dataplane.config import load
from dataplane.errors import FabricError
from dataplane.fabric.kernel.manifest import RUN_ROOT, Manifest, ProcessId
from dataplane.fabric.kernel.namespaces import RUN_NETNS
from dataplane.fabric.live import standing
from dataplane.topology.file import loads

ONE = """
millrace: 1
name: one
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}]
"""
COMMAND = (sys.executable, "-m", "controller.apps.cli", "fabric")
runner = CliRunner()

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(scope="module")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("fabric") / "one.yaml"
    file.write_text(ONE, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def fabric(topology: Path) -> Iterator[str]:
    """Return the name of a background fabric; its process is ended afterwards, whatever the tests did."""
    name = f"t-{secrets.token_hex(3)}"
    captured = subprocess.run(
        [*COMMAND, "up", str(topology), "--name", name, "--detach"], check=False, capture_output=True, text=True
    )
    try:
        assert captured.returncode == 0, captured.stderr
        begun, *_ = captured.stderr.splitlines()
        assert begun.startswith(f"millrace fabric: {name}: starting 1 switches and 2 hosts")
        assert f"ready: {name}: 1 switches, 2 hosts; namespaces mr-{name}-NODE" in captured.stderr
        yield name
    finally:
        manifest = Manifest.load(RUN_ROOT / name)
        if manifest is not None:
            standing.end(manifest)


def rows(*words: str) -> list[dict[str, object]]:
    done = runner.invoke(app, ["fabric", "list", *words, "--format", "json"], catch_exceptions=False)
    table: list[dict[str, object]] = json.loads(done.stdout)
    return table


def refused(*words: str) -> str:
    """Return the refusal line of a command."""
    error = runner.invoke(app, ["fabric", *words]).exception
    assert isinstance(error, FabricError), error
    return str(error)


@pytest.mark.root
@needs_root
def test_it_is_listed_entered_and_taken_down(fabric: str, topology: Path) -> None:
    (row,) = (row for row in rows() if row["fabric"] == fabric)
    assert (row["topology"], row["state"], row["switches"], row["hosts"]) == ("one", "up", 1, 2)
    nodes = {row["node"]: row for row in rows(fabric)}
    assert nodes["h2"] == {
        "node": "h2",
        "kind": "host",
        "namespace": f"mr-{fabric}-h2",
        "address": nodes["h2"]["address"],
    }
    assert Path(str(nodes["s1"]["address"]).removeprefix("unix:")).is_socket()

    # The command keeps its options, its input and its exit status.
    script = f"ip -4 -o address show dev eth0 | grep -qF ' {nodes['h1']['address']}/' && read word && exit $word"
    done = subprocess.run(
        [*COMMAND, "exec", "--fabric", fabric, "h1", "sh", "-c", script], check=False, input="7\n", text=True
    )
    assert done.returncode == 7

    assert refused("up", str(topology), "--name", fabric).startswith(f"a fabric {fabric} already exists: ")
    assert (RUN_NETNS / f"mr-{fabric}-h1").exists(), "what was refused has touched nothing"
    assert "has no node 'h3'; known: h1, h2, s1" in refused("exec", "--fabric", fabric, "h3", "true")
    assert "there is no fabric 'other'" in refused("down", "other")

    assert runner.invoke(app, ["fabric", "down", fabric]).exit_code == 0
    assert not list(RUN_NETNS.glob(f"mr-{fabric}-*"))
    assert not (RUN_ROOT / fabric).exists()


@pytest.mark.root
@needs_root
def test_a_killed_one_is_shown_and_taken_down(topology: Path) -> None:
    """In the foreground, it reports when it is ready; after SIGKILL it is left over and can be removed."""
    name = f"t-{secrets.token_hex(3)}"
    command = [*COMMAND, "up", str(topology), "--name", name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("ready: " in line for line in process.stderr)
        process.send_signal(signal.SIGKILL)
    assert [row["state"] for row in rows() if row["fabric"] == name] == ["left over"]
    assert runner.invoke(app, ["fabric", "down", name]).exit_code == 0
    assert not list(RUN_NETNS.glob(f"mr-{name}-*"))


def test_another_programs_fabric_is_left_to_it(tmp_path: Path) -> None:
    owner = ProcessId.of(os.getpid())
    assert owner is not None
    with pytest.raises(FabricError, match=f"fabric a1b2c3 is process {os.getpid()}'s, which removes it when it ends"):
        standing.end(Manifest("a1b2c3", owner, topology="one"), tmp_path)


def test_one_line_without_root(monkeypatch: pytest.MonkeyPatch, topology: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for words in (("up", str(topology)), ("down",), ("list",), ("exec", "h1", "true")):
        assert "a kernel fabric needs root" in refused(*words)


def test_names_that_namespaces_cannot_have_are_wrong_usage(monkeypatch: pytest.MonkeyPatch, topology: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    done = runner.invoke(app, ["fabric", "up", str(topology), "--name", "a/b"])
    assert done.exit_code == 2
    assert "'a/b' is not 1 to 32 of a-z, 0-9 and -" in done.output


def test_next_steps_run_each_daemon_where_it_works() -> None:
    text = ONE.replace("name: one", "name: one\ncollector: {host: h2}", 1)
    collector, controller, traffic, end = next_steps(loads(text), "lab")
    assert collector.endswith("`millrace fabric exec --fabric lab h2 -- millrace collector serve -s FILE`")
    assert controller.endswith(f"switches: unix:{RUN_ROOT}/lab/{{name}}.sock")
    assert traffic.startswith("traffic: `millrace fabric exec --fabric lab h1 -- ping 10.")
    assert end == "end: `millrace fabric down lab`"
    assert len(next_steps(loads(ONE), "lab")) == 3


def test_daemons_of_a_fabric_join_its_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = tmp_path / "one.yaml"
    text = ONE.replace("name: one", "name: one\ncollector: {host: h2, udp_port: 45679}", 1)
    file.write_text(text, encoding="utf-8")
    beside = FabricDaemons.of("lab", str(file), "unix:/run/x/{name}.sock")
    assert beside.folder.path == tmp_path / "state/millrace/fabric-lab"
    settings = load(beside.folder.settings, UpSettings)
    assert (settings.topology, settings.switches) == (str(file), "unix:/run/x/{name}.sock")
    assert beside.reports == f"127.0.0.1:{settings.collector.udp_port or 45679}"
    # A second start uses the file as it is.
    assert FabricDaemons.of("lab", str(file), "unix:/run/x/{name}.sock") == beside
    steps = next_steps(loads(text), "lab", beside)
    assert steps[0].startswith(f"daemons: `millrace status --state {beside.folder.path}`")
    assert not any("collector serve" in step for step in steps)
    with pytest.raises(UpError, match=r"fabric-lab/millrace.yaml has topology \S+, not abilene: remove it, or choose"):
        FabricDaemons.of("lab", "abilene", "unix:/run/x/{name}.sock")
    other = tmp_path / "none.yaml"
    other.write_text(ONE, encoding="utf-8")
    with pytest.raises(UpError, match="topology one: has no collector"):
        FabricDaemons.of("bare", str(other), "unix:/run/x/{name}.sock")
