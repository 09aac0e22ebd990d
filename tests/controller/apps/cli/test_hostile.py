"""Hostile values, a few here and thousands in tests/soak: one error line and a documented exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from controller.apps import cli
from controller.apps.cli import app
from dataplane import given
from tests.controller.apps.cli.hostile.calls import FILES, calls, problem_of
from tests.controller.apps.cli.hostile.sandbox import furnish

LOCAL = (
    "balance learn",
    "balance tune",
    "balance whatif",
    "certs show",
    "config check",
    "stf",
    "topology check",
    "trace",
)
"""Commands that only read files here."""
ENDLESS = ("/dev/zero", "/dev/full", "pipe", "folder", "large")


COMMAND = get_command(app.app)


def files_for_local() -> Iterator[tuple[str, ...]]:
    for words in calls():
        value = next((word for word in words if word.partition("=")[2] in ENDLESS or word in ENDLESS), None)
        if (" ".join(words[:2]) in LOCAL or words[0] in LOCAL) and value is not None and "--out" not in value:
            yield words


def run(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> dict[str, object]:
    monkeypatch.setattr(sys, "argv", ["millrace", *words])
    status: object = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code or 0
    errors = capfd.readouterr().err
    return {"words": words, "status": status, "said": errors, "stopped": False, "stays": False, "memory_mb": 0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(app, "app", COMMAND)  # once, not in each call
    monkeypatch.setattr(given, "_WAIT_S", 0.01)
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def test_files_without_an_end_are_a_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    every = list(files_for_local())
    assert len(every) > 100
    results = [run(words, monkeypatch, capfd) for words in every]
    assert [(problem, result["words"]) for result in results if (problem := problem_of(result))] == []


@pytest.mark.parametrize(
    ("words", "status", "line"),
    [
        (
            "config check collector /dev/zero",
            1,
            "millrace: /dev/zero: is larger than 16 MiB, the most that is read",
        ),
        ("trace /dev/full 00", 1, "millrace: /dev/full: is larger than 64 MiB, the most that is read"),
        ("config check collector pipe", 1, "millrace: pipe: is a pipe that stays silent for 0.01 s"),
        ("config check collector large", 1, "millrace: large: is larger than 16 MiB, the most that is read"),
        ("switch /dev/zero", 1, "millrace switch: /dev/zero: is larger than 64 MiB, the most that is read"),
        ("trace @/dev/zero", 2, None),
        ("job remove --reason=\udcff x x", 2, r"millrace: --reason=\udcff: is not UTF-8 text"),
        ("topology check \x1b[2J", 1, None),
        ("probe list --api=1:2:3", 2, None),
    ],
)
def test_errors_of_hostile_values(
    words: str,
    status: int,
    line: str | None,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = run(tuple(words.split(" ")), monkeypatch, capfd)
    assert problem_of(result) is None
    assert result["status"] == status
    if line is not None:
        assert result["said"] == f"{line}\n"


def test_undecodable_file_name_is_read_if_the_file_exists(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    Path(os.fsdecode(b"\xff.yaml")).write_text("topology: abilene\nfeed: {}\n")
    result = run(("config", "check", "collector", os.fsdecode(b"\xff.yaml")), monkeypatch, capfd)
    assert (result["status"], result["said"]) == (0, "")


def test_every_command_is_called() -> None:
    every = {" ".join(words) for words in calls()}
    assert len(every) > 10_000
    assert all(any(file in line for line in every) for file in FILES)
