"""Daemons as processes: one line and status 1 for bad settings, a quick end with status 0 on SIGTERM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from controller.apps.cli import main
from dataplane.local.deadline import wait_for_exit

ROOT = Path(__file__).parents[4]
LIMIT_S = 30.0
STOP_S = 2.0
COLLECTOR = 'topology: abilene\nreceiver: {address: 127.0.0.1, udp_port: 0}\nfeed: {address: "unix:feed"}\n'
COLLECTOR_IN_TOML = """
topology = "abilene"
[receiver]
address = "127.0.0.1"
udp_port = 0
[feed]
address = "unix:feed"
"""
PATHS = 'topology: abilene\nfeed: "unix:feed"\nlisten: "unix:paths"\n'
SWITCHES = "".join(
    f"  {name}: unix:none\n"
    for name in ("atla", "atlam5", "chin", "dnvr", "hstn", "ipls", "kscy", "losa", "nycm", "snva", "sttl", "wash")
)
CONTROLLER = f"topology: abilene\nswitches:\n{SWITCHES}"
SETTINGS = {"collector serve": COLLECTOR, "paths serve": PATHS, "controller serve": CONTROLLER}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a short name: a unix socket's path has about 100 bytes."""
    with TemporaryDirectory(prefix="cli") as name:
        yield Path(name)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `millrace` in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "controller.apps.cli", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def refused(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command in this process and returns its last line."""

    def run(*arguments: str) -> str:
        monkeypatch.chdir(folder)
        monkeypatch.setattr("sys.argv", ["millrace", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 1
        captured = capsys.readouterr()
        return the_line(captured.out, captured.err)

    return run


def the_line(out: str, errors: str) -> str:
    """Return the error line of a command from its output."""
    assert out == ""
    lines = errors.splitlines()
    assert lines, "no output"
    assert lines[-1].startswith("millrace: "), errors
    assert "Traceback" not in errors
    assert len([line for line in lines if not line.startswith("millrace ")]) == 1, errors
    return lines[-1].removeprefix("millrace: ")


def test_a_file_that_is_not_there_is_a_line_of_a_process(folder: Path) -> None:
    process = start(folder, "collector", "serve", "-s", "none.yaml")
    assert the_line(*process.communicate(timeout=LIMIT_S)) == "none.yaml: No such file or directory"
    assert process.returncode == 1


@pytest.mark.parametrize("command", SETTINGS)
def test_settings_files_that_are_wrong(folder: Path, refused: Callable[..., str], command: str) -> None:
    words = command.split()
    assert refused(*words, "-s", "none.yaml") == "none.yaml: No such file or directory"
    (folder / "a.yaml").write_text(SETTINGS[command] + "surprise: 1\n", encoding="utf-8")
    assert "surprise: unknown key" in refused(*words, "-s", "a.yaml")
    (folder / "b.toml").write_text("topology = 3\n", encoding="utf-8")
    assert refused(*words, "-s", "b.toml").startswith("b.toml: ")
    (folder / "c.yaml").write_text(SETTINGS[command].replace("abilene", "atlantis"), encoding="utf-8")
    assert "atlantis: is neither a file nor one of" in refused(*words, "-s", "c.yaml")


@pytest.mark.parametrize(
    ("command", "old", "new", "problem"),
    [
        ("collector serve", "127.0.0.1", "no.such.host.invalid", "cannot receive reports on UDP no.such.host.invalid"),
        ("collector serve", "unix:feed", "unix:no/feed", "there is no folder no"),
        ("collector serve", "unix:feed", "unix:" + "x" * 120, "the path has 120 bytes"),
        ("collector serve", "unix:feed", "127.0.0.1", "is neither unix:PATH nor HOST:PORT"),
        ("paths serve", "unix:paths", "unix:no/paths", "cannot serve routes at unix:no/paths: there is no folder no"),
        ("paths serve", "unix:feed", "feed", "collector at 'feed': is neither"),
        ("paths serve", "listen", "flows: [{src: x, dst: y}]\nlisten", "flows: topology abilene has no host 'x'"),
        ("paths serve", "listen", "records: {database: no/x.db}\nlisten", "no/x.db: cannot open"),
        ("controller serve", "  wash: unix:none\n", "", "switch wash of abilene has no address"),
        ("controller serve", "wash: unix:none", "wash: none", "switches.wash: 'none' is neither"),
        ("controller serve", "switches:", "watches: [{src: x}]\nswitches:", "watches: there is no host 'x'"),
        (
            "controller serve",
            "switches:",
            "reporting: {drops: [{src: x}]}\nswitches:",
            "drop watches: there is no host 'x' in topology abilene",
        ),
        (
            "controller serve",
            "switches:",
            "jobs: {listen: x}\nswitches:",
            "cannot serve aggregation jobs at x: is neither unix:PATH nor",
        ),
        ("controller serve", "switches:", "p4info: none\nswitches:", "none: there is no such file"),
        (
            "controller serve",
            "switches:",
            "tls: {ca: none}\nswitches:",
            "none: tls: cannot read the authority's certificate",
        ),
        (
            "controller serve",
            "switches:",
            "tls: {ca: x, certificate: y}\nswitches:",
            "tls: certificate and private_key",
        ),
    ],
)
def test_settings_that_cannot_be(
    folder: Path, refused: Callable[..., str], command: str, old: str, new: str, problem: str
) -> None:
    text = SETTINGS[command]
    assert old in text
    (folder / "s.yaml").write_text(text.replace(old, new, 1), encoding="utf-8")
    assert problem in refused(*command.split(), "-s", "s.yaml")


def test_a_port_in_use(folder: Path, refused: Callable[..., str]) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        (folder / "s.yaml").write_text(COLLECTOR.replace("udp_port: 0", f"udp_port: {port}"), encoding="utf-8")
        line = refused("collector", "serve", "-s", "s.yaml")
    assert line == f"cannot receive reports on UDP 127.0.0.1 port {port}: Address already in use"


@pytest.mark.parametrize("command", SETTINGS)
def test_sigterm_ends_it_without_its_servers(folder: Path, command: str) -> None:
    """SIGHUP does not end it; the collector's settings are TOML."""
    file = "s.toml" if command == "collector serve" else "s.yaml"
    text = COLLECTOR_IN_TOML if command == "collector serve" else SETTINGS[command]
    (folder / file).write_text(text, encoding="utf-8")
    process = start(folder, *command.split(), "-s", file)
    assert process.stderr is not None
    try:
        while "ready" not in (line := process.stderr.readline()):
            assert line, "it ended before it was ready"
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert wait_for_exit(process, STOP_S, command), "it does not stop"
        _, rest = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 0
    assert "Traceback" not in rest


@pytest.mark.parametrize("command", ["collector", "controller"])
def test_the_form_without_serve_still_runs(folder: Path, command: str) -> None:
    process = start(folder, command, "-s", "none.yaml")
    deprecated = f"millrace: `millrace {command}` is deprecated: use `millrace {command} serve`"
    out, errors = process.communicate(timeout=LIMIT_S)
    assert (out, errors.splitlines()) == ("", [deprecated, "millrace: none.yaml: No such file or directory"])
