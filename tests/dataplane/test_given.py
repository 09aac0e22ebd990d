"""Files named by users are read up to a limit, and no pipe is awaited indefinitely."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dataplane import given
from dataplane.given import given_lines, open_given, read_given, read_given_text
from tests.waiting import HANG_S

MESSAGES = {
    "/dev/zero": "is larger than 1 MiB, the most that is read",
    "/dev/full": "is larger than 1 MiB, the most that is read",
    "large": "is larger than 1 MiB, the most that is read",
    "pipe": "is a pipe that stays silent for 0.05 s",
    "folder": "Is a directory",
    "none": "No such file or directory",
    "with\0nul": "is not a file name",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("folder").mkdir()
    with Path("large").open("wb") as file:
        file.truncate(1 << 42)
    return tmp_path


def read_opened(path: str) -> bytes:
    with open_given(path) as file:
        return file.read()


@pytest.mark.parametrize("name", MESSAGES)
def test_what_cannot_be_read_says_why(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_WAIT_S", 0.05)
    with pytest.raises(OSError, match=MESSAGES[name]) as caught:
        read_given(name, given.MIB)
    assert caught.value.strerror == MESSAGES[name]
    assert caught.value.filename == name


def test_file_at_the_size_limit_is_read_and_beyond_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(100))
    assert read_given(file, 100) == bytes(100)
    file.write_bytes(bytes(101))
    with pytest.raises(OSError, match="is larger than 100 bytes"):
        read_given(file, 100)


def test_a_file_that_says_it_is_empty_is_read_to_its_end() -> None:
    assert read_given("/proc/self/status").startswith(b"Name:")
    assert read_given("/dev/null") == b""


def test_text_is_what_path_reads(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for content in ("a\r\nb\rc\n", "\ufeffa\n", "ä", ""):
        file.write_bytes(content.encode())
        assert read_given_text(file) == file.read_text(encoding="utf-8")
        assert read_given_text(file, encoding="utf-8-sig") == file.read_text(encoding="utf-8-sig")
    file.write_bytes(b"\xff")
    with pytest.raises(UnicodeDecodeError):
        read_given_text(file)


@pytest.mark.parametrize("read", [read_given, read_opened], ids=["read", "open"])
def test_a_pipe_is_read_however_slowly_it_is_written(folder: Path, read: Callable[[str], bytes]) -> None:
    """The writer waits for a reader first, and then fills the pipe more than once."""
    parts = [b"a" * 100_000, b"b", b"c" * 70_000]

    def write() -> None:
        with Path("pipe").open("wb", buffering=0) as file:
            for part in parts:
                file.write(part)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert read("pipe") == b"".join(parts)
    finally:
        writer.join(HANG_S)


@pytest.mark.parametrize("read", [read_given, open_given], ids=["read", "open"])
def test_a_pipe_that_stays_silent_is_given_up(
    folder: Path, read: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(given, "_WAIT_S", 0.05)
    writer = os.open("pipe", os.O_RDWR)
    with pytest.raises(OSError, match=r"is a pipe that stays silent for 0\.05 s"):
        read("pipe")
    os.close(writer)


@pytest.mark.parametrize("read", [read_given, read_opened], ids=["read", "open"])
def test_a_pipe_that_is_closed_is_empty(folder: Path, read: Callable[[str], bytes]) -> None:
    writer = threading.Thread(target=lambda: Path("pipe").write_bytes(b""))
    writer.start()
    try:
        assert read("pipe") == b""
    finally:
        writer.join(HANG_S)


def test_lines_have_a_longest(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xef\xbb\xbfa\r\nb\n\nlast")
    assert list(given_lines(file, encoding="utf-8-sig")) == ["a\r\n", "b\n", "\n", "last"]
    with pytest.raises(OSError, match="has a line of more than 1 MiB"):
        list(given_lines("/dev/zero"))
