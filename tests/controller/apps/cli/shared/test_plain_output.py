"""Foreign text on a terminal: control sequences are escaped, however a command prints."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from controller.apps.cli.shared.output import Format, number_text, show
from controller.apps.cli.shared.plain_output import plain_output
from controller.common.console import plain_or_terminal
from dataplane.errors import plain

EVIL = "a\x1b]0;title\x07b\x1b[31mc\x9b2Jd\re\u202ef\x7fg\th\ni"
SPELLED = "a\\x1b]0;title\\x07b\\x1b[31mc\\x9b2Jd\\re\\u202ef\\x7fg\th\ni"
OBEYED = ("\x1b]", "\x07", "\x1b[31mc", "\x9b", "\u202e", "\x7f")


def on_terminal(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> str:
    """Return the output on a terminal."""
    main, terminal = pty.openpty()
    with os.fdopen(main, "rb", buffering=0) as reader, os.fdopen(terminal, "w", encoding="utf-8") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("COLUMNS", "200")
        with plain_output():
            act()
        stdout.flush()
        return reader.read(1 << 16).decode()


@pytest.mark.parametrize(
    "act",
    [
        lambda: typer.echo(EVIL),
        lambda: print(EVIL),
        lambda: plain_or_terminal().print(EVIL),
        lambda: show((EVIL, "b"), [(EVIL, [EVIL, {EVIL: EVIL}])], Format.TABLE),
        lambda: show((EVIL, "b"), [(EVIL, 1)], Format.CSV),
        lambda: show((EVIL, "b"), [(EVIL, 1)], Format.JSON),
    ],
)
def test_a_terminal_finds_nothing_to_obey(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    written = on_terminal(monkeypatch, act)
    assert "title" in written
    assert not any(part in written for part in OBEYED)


def test_tables_keep_their_own_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1m" in on_terminal(monkeypatch, lambda: show(("name",), [("x",)], Format.TABLE))


def test_text_is_spelled_out_and_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(EVIL) == SPELLED
    with plain_output():
        show(("a",), [(EVIL.replace("\x9b", "").replace("\u202e", "").replace("\x7f", ""),)], Format.JSON)
    assert "\x1b" in json.loads(capsys.readouterr().out)[0]["a"]


def test_bytes_of_containers_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    with plain_output():
        sys.stdout.buffer.write(b"\x1b[31m")
    assert raw.getvalue() == b"\x1b[31m"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (4_994_420.0, "4994420"),
        (-4_994_415.25, "-4994415.25"),
        (999_999.5, "999999.5"),
        (0.1 + 0.2, "0.3"),
        (1 / 3, "0.333333"),
        (123_456_789_012_345.0, "123456789012345"),
        (1.5e300, "1.5e+300"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_tables_show_numbers_without_losing_digits(number: float, text: str) -> None:
    assert number_text(number) == text
