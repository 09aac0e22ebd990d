"""Secrets of projects: separate for each project, and no file that others could have placed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.apiserver.agents.secret_files import SecretError, secrets_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    secrets = tmp_path / "secrets"
    for project in ("vision", "audio"):
        (secrets / project).mkdir(parents=True, mode=0o700)
        write(secrets / project / "key", f"of {project}\n")
    secrets.chmod(0o700)
    return secrets


def write(path: Path, text: str | bytes) -> None:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    path.chmod(0o600)


def test_a_secret_is_that_of_the_project(folder: Path) -> None:
    write(folder / "vision" / "lines", "a\nb\n\n")
    wanted = {"KEY": "key", "LINES": "lines"}
    assert secrets_of(folder, "vision", wanted) == {"KEY": "of vision", "LINES": "a\nb\n"}
    assert secrets_of(folder, "audio", {"KEY": "key"}) == {"KEY": "of audio"}
    assert secrets_of(None, "audio", {}) == {}


def put_nothing(_: Path) -> None:
    pass


def put_link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "audio" / "key")


def put_pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


def put_readable(path: Path) -> None:
    write(path, "x")
    path.chmod(0o644)


def put_large(path: Path) -> None:
    write(path, "x" * 65_537)


def put_binary(path: Path) -> None:
    write(path, b"\xff")


def put_nul(path: Path) -> None:
    write(path, "a\0b")


def put_folder(path: Path) -> None:
    path.mkdir(mode=0o700)


@pytest.mark.parametrize(
    ("put", "problem"),
    [
        (put_nothing, "no such file or directory"),
        (put_link, "too many levels of symbolic links"),
        (put_pipe, "it is not a regular file"),
        (put_readable, "other users can access it"),
        (put_large, "it is larger than 65536 bytes"),
        (put_binary, "it is not text"),
        (put_nul, "it contains a NUL"),
        (put_folder, "it is not a regular file"),
    ],
    ids=lambda value: getattr(value, "__name__", "").removeprefix("put_"),
)
def test_invalid_secret_is_one_line(folder: Path, put: object, problem: str) -> None:
    put(folder / "vision" / "odd")  # type: ignore[operator]
    with pytest.raises(SecretError, match=f"^secret odd of project vision: .*{problem}"):
        secrets_of(folder, "vision", {"KEY": "odd"})


def test_folders_of_others_are_not_believed(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o755)
    with pytest.raises(SecretError, match="other users can access it"):
        secrets_of(folder, "vision", {"KEY": "key"})
    folder.chmod(0o700)
    (folder / "linked").symlink_to(folder / "audio")
    with pytest.raises(SecretError, match="secret key of project linked: "):
        secrets_of(folder, "linked", {"KEY": "key"})
    with pytest.raises(SecretError, match="`secrets` names no folder"):
        secrets_of(None, "vision", {"KEY": "key"})
    with pytest.raises(SecretError, match="no such file"):
        secrets_of(tmp_path / "nowhere", "vision", {"KEY": "key"})
