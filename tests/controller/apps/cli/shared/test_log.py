"""Log lines of daemons, their formats, and the command's version."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from controller.apps.cli.shared import common
from controller.apps.cli.shared.log import Repeats, formatter_of
from controller.apps.cli.shared.log_options import OPTIONS, LogFormat, LogLevel, LogOptions

runner = CliRunner()
RECORD = logging.LogRecord("millrace.controller", logging.WARNING, "", 0, "switch %s: %s", ("s1", "gone"), None)


def test_lines_have_time_level_and_name() -> None:
    line = formatter_of("controller", LogFormat.TEXT).format(RECORD)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING millrace\.controller: switch s1: gone", line)


def test_a_line_of_json_has_them_as_keys() -> None:
    event = json.loads(formatter_of("controller", LogFormat.JSON).format(RECORD))
    assert event.pop("time").endswith("Z")
    expected = {
        "level": "warning",
        "daemon": "controller",
        "logger": "millrace.controller",
        "message": "switch s1: gone",
    }
    assert event == expected
    try:
        raise OSError("full")
    except OSError:
        failed = logging.LogRecord("x", logging.ERROR, "", 0, "failed", None, sys.exc_info())
    assert "OSError: full" in json.loads(formatter_of("controller", LogFormat.JSON).format(failed))["exception"]


def test_plain_lines_have_no_time() -> None:
    plain = formatter_of("controller", LogFormat.PLAIN)
    assert plain.format(RECORD) == "millrace controller: WARNING: switch s1: gone"
    told = logging.LogRecord("x", logging.INFO, "", 0, "reconciled", None, None)
    assert plain.format(told) == "millrace controller: reconciled"


@pytest.mark.parametrize(
    ("words", "environment", "options"),
    [
        ([], {}, LogOptions()),
        (["--log-level", "debug"], {}, LogOptions(LogLevel.DEBUG)),
        ([], {"MILLRACE_LOG_FORMAT": "json"}, LogOptions(form=LogFormat.JSON)),
        (["--quiet"], {}, LogOptions(LogLevel.WARNING, quiet=True)),
        (["-q", "--log-level", "error"], {}, LogOptions(LogLevel.ERROR, quiet=True)),
    ],
)
def test_options_before_the_command_set_the_logging(
    words: list[str], environment: dict[str, str], options: LogOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[LogOptions] = []

    def listed() -> dict[str, Path]:
        seen.append(OPTIONS.get())
        return {}

    monkeypatch.setattr("dataplane.topology.file.bundled_topologies", listed)
    assert runner.invoke(app, [*words, "topology", "list"], env=environment).exit_code == 0
    assert seen == [options]


def test_ready_lines_are_as_the_log_is(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    token = OPTIONS.set(LogOptions())
    common.say("collector")("ready: here")
    assert capsys.readouterr().err == "millrace collector: ready: here\n"
    OPTIONS.set(LogOptions(quiet=True))
    common.say("collector")("ready: here")
    OPTIONS.set(LogOptions(form=LogFormat.JSON))
    with caplog.at_level(logging.INFO):
        common.say("collector")("ready: here")
    OPTIONS.reset(token)
    assert capsys.readouterr().err == ""
    assert [(record.name, record.message) for record in caplog.records] == [("millrace.collector", "ready: here")]


def test_version_and_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.match(r"millrace", runner.invoke(app, ["--version"]).output)
    for shell, environment in (
        ("bash", {"COMP_WORDS": "millrace topo", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "millrace topo"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "millrace topo", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ):
        done = runner.invoke(
            app, [], prog_name="millrace", env={"_MILLRACE_COMPLETE": f"complete_{shell}"} | environment
        )
        assert "topology" in done.output, shell
        assert "telemetry" not in done.output, shell


def test_repeated_warnings_are_left_out_and_counted() -> None:
    repeats = Repeats()

    def logged(time_s: float, text: str, level: int = logging.WARNING) -> str | None:
        record = logging.LogRecord("millrace.controller", level, "", 0, "%s", (text,), None)
        record.created = time_s
        return record.getMessage() if repeats.filter(record) else None

    lost = "collector unix:/c: cannot connect"
    assert [logged(time_s, lost) for time_s in (10.0, 10.0004, 10.0009)] == [lost, None, None]
    assert logged(10.001, "paths unix:/p: cannot connect") is not None
    assert logged(10.001, lost, logging.ERROR) == lost
    assert logged(11.1, lost) == f"{lost} (and 2 times before)"
    assert logged(13.0, lost) == lost
    assert [logged(14.0, "listening", logging.INFO) for _ in range(2)] == ["listening"] * 2
    assert all(logged(15.0, f"flow {number}") for number in range(100))
    assert len(repeats._last) == 64
