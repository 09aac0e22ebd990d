"""Logs as written by conmon: lines, partial lines, tails, lines since a time; without containers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes import logs
from controller.workloads.nodes.runtimes.base import STDERR, STDOUT, Output
from controller.workloads.nodes.runtimes.logs import parse, read_log

LOG = (
    b"2026-11-23T03:39:42.848067440+00:00 stdout F one\n"
    b"2026-11-23T03:39:43.848220299+00:00 stdout P long \n"
    b"2026-11-23T03:39:43.848220300+00:00 stdout F line\n"
    b"2026-11-23T03:39:44.000000001+00:00 stderr F wrong\n"
    b"2026-11-23T03:39:45.000000000+00:00 stdout P end\n"
)


def read(path: Path, **how: int) -> list[Output]:
    async def main() -> list[Output]:
        return [output async for output in read_log(path, **how)]  # type: ignore[arg-type]

    return asyncio.run(main())


def test_lines_of_one_stream_are_joined(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(LOG)
    assert read(tmp_path / "log") == [
        Output(STDOUT, b"one\nlong line\n"),
        Output(STDERR, b"wrong\n"),
        Output(STDOUT, b"end"),
    ]


@pytest.mark.parametrize(
    ("tail", "text"),
    [(0, b""), (1, b"end"), (2, b"wrong\nend"), (3, b"long line\nwrong\nend"), (9, b"one\nlong line\nwrong\nend")],
)
def test_the_last_lines(tmp_path: Path, tail: int, text: bytes) -> None:
    (tmp_path / "log").write_bytes(LOG)
    assert b"".join(output.data for output in read(tmp_path / "log", tail=tail)) == text


def test_the_last_lines_of_a_long_log(tmp_path: Path) -> None:
    lines = [b"2026-11-23T03:39:42.848067440+00:00 stdout F %d\n" % number for number in range(20_000)]
    (tmp_path / "log").write_bytes(b"".join(lines))
    for tail in (1, 1000, 19_999, 20_000, 20_001):
        text = b"".join(output.data for output in read(tmp_path / "log", tail=tail))
        assert text.split() == [b"%d" % number for number in range(max(0, 20_000 - tail), 20_000)]


def test_the_last_lines_of_a_long_log_are_found_in_a_few_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain twin: split everything read so far again on each look."""
    line, number = b"2026-11-23T03:39:42.848067440+00:00 stdout F x\n", 40_000
    (tmp_path / "log").write_bytes(line * number)
    looks, starts_of_lines = list[int](), logs._starts_of_lines

    def counted(data: bytes, offset: int) -> list[int]:
        looks.append(len(data))
        return starts_of_lines(data, offset)

    monkeypatch.setattr(logs, "_starts_of_lines", counted)
    assert sum(output.data.count(b"x") for output in read(tmp_path / "log", tail=number)) == number
    assert sum(looks) <= 3 * number * len(line)


def test_older_lines_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(LOG)
    since_ns = 1_795_405_184_000_000_001  # 2026-11-23T03:39:44.000000001Z
    assert read(tmp_path / "log", since_ns=since_ns) == [Output(STDERR, b"wrong\n"), Output(STDOUT, b"end")]
    assert read(tmp_path / "log", since_ns=since_ns + 1) == [Output(STDOUT, b"end")]


def test_pieces_are_bounded() -> None:
    lines = [b"2026-11-23T03:39:42.8+00:00 stdout P " + b"x" * 8000 + b"\n"] * 100
    pieces = list(parse(lines))
    assert sum(len(piece.data) for piece in pieces) == 800_000
    assert max(len(piece.data) for piece in pieces) <= 65_536


def test_malformed_lines_are_left_out(tmp_path: Path) -> None:
    assert list(parse([b"\n", b"x\n", b"a b c d\n", b"when stdout\n"])) == [Output(STDOUT, b"\n")]
    assert read(tmp_path / "nothing") == []
    (tmp_path / "log").write_bytes(LOG + b"2026-11-23T03:39:46.0+00:00 stdout F not whole")
    assert read(tmp_path / "log")[-1] == Output(STDOUT, b"end")


def test_a_log_that_is_followed_over_a_new_file(tmp_path: Path) -> None:
    """conmon writes to a new file and renames it over the old one."""
    path, runs = tmp_path / "log", True

    def line(text: str) -> bytes:
        return f"2026-11-23T03:39:42.8+00:00 stdout F {text}\n".encode()

    async def is_running() -> bool:
        return runs

    async def main() -> list[bytes]:
        nonlocal runs
        seen = []
        async for output in read_log(path, is_running=is_running):
            seen.append(output.data)
            if output.data == b"one\n":
                with path.open("ab") as log:
                    log.write(line("two"))
                (tmp_path / "new").write_bytes(line("three"))
                (tmp_path / "new").rename(path)
            elif output.data == b"three\n":
                runs = False
                with path.open("ab") as log:
                    log.write(line("four"))
        return seen

    path.write_bytes(line("one"))
    assert asyncio.run(main()) == [b"one\n", b"two\n", b"three\n", b"four\n"]
