"""The daemons' lines: whole, without cursor movements, in rotating files."""

from __future__ import annotations

from pathlib import Path

from controller.apps.up.command import merged_lines
from controller.apps.up.settings import LogSettings
from controller.apps.up.supervision.lines import MOST_LINE_BYTES, DaemonLog, LineSplitter, terminal


def test_lines_come_whole_and_move_no_cursor() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"one\ntw") == ["one"]
    assert splitter.feed(b"o\n\n\xff\x1b[2Jthree") == ["two"]
    assert splitter.end() == ["�?[2Jthree"]
    assert splitter.end() == []


def test_a_line_without_an_end_is_cut() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"x" * (MOST_LINE_BYTES + 1)) == ["x" * MOST_LINE_BYTES]
    assert splitter.end() == ["x"]


def test_logs_rotate_and_are_merged_by_time(tmp_path: Path) -> None:
    lines: list[str] = []
    settings = LogSettings(max_bytes=100, files=2)
    logs = [DaemonLog(name, tmp_path, settings, lines.append) for name in ("collector", "paths")]
    for number in range(10):
        logs[number % 2].write(f"millrace {('collector', 'paths')[number % 2]}: line {number}")
    for log in logs:
        log.close()
        assert log.lost == 0
    assert [line.split()[1:] for line in lines] == [
        [("collector", "paths")[number % 2], "line", str(number)] for number in range(10)
    ]
    assert {path.name for path in tmp_path.iterdir()} == {
        *(f"{name}.log" for name in ("collector", "paths")),
        *(f"{name}.log.1" for name in ("collector", "paths")),
    }
    last = merged_lines([tmp_path / "paths.log", tmp_path / "collector.log"], 4)
    assert {tuple(line.split()[2:]) for line in last} >= {("paths", "line", "9"), ("collector", "line", "8")}
    assert last == sorted(last, key=lambda line: line[:23])


def test_a_terminal_that_has_gone_ends_nothing() -> None:
    lines: list[str] = []

    def echo(line: str) -> None:
        if len(lines) == 2:
            raise BrokenPipeError
        lines.append(line)

    say = terminal(echo)
    for line in "abcd":
        say(line)
    assert lines == ["a", "b"]
