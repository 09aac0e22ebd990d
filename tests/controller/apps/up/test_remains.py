"""Files that daemons leave in the run folder, and `millrace down` after a kill."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from controller.apps.up import command
from controller.apps.up.control import SOCKET
from controller.apps.up.errors import UpError
from controller.apps.up.remains import remove_remains
from controller.apps.up.state import StateFolder

NAMES = (SOCKET, "collector.sock", "switches/s1.sock")


@contextmanager
def sockets(run: Path, *names: str, listen: bool) -> Iterator[None]:
    """Hold sockets; those that do not listen are as a killed daemon leaves them."""
    with ExitStack() as stack:
        for name in names:
            path = run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            opened = stack.enter_context(socket.socket(socket.AF_UNIX))
            opened.bind(str(path))
            if listen:
                opened.listen()
        yield


def test_what_killed_daemons_leave_is_removed(tmp_path: Path) -> None:
    (tmp_path / "fabric.json").touch()
    (tmp_path / ".fabric.json.77").touch()
    (tmp_path / "namespaces").mkdir()
    (tmp_path / "namespaces" / "h1").symlink_to("/run/netns/absent")
    with sockets(tmp_path, *NAMES, listen=False):
        (tmp_path / "switches" / "s2.sock").symlink_to(tmp_path / "absent")
        removed = remove_remains(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(removed) == len(NAMES) + 4
    assert remove_remains(tmp_path) == []


def test_what_lives_or_is_of_others_stays(tmp_path: Path) -> None:
    (tmp_path / "fabric.json").touch()
    with sockets(tmp_path, *NAMES, listen=True), sockets(tmp_path, "alto.sock", listen=False):
        before = sorted(tmp_path.rglob("*"))
        assert remove_remains(tmp_path) == []
        assert sorted(tmp_path.rglob("*")) == before


def test_down_clears_the_folder_of_a_killed_supervisor(tmp_path: Path) -> None:
    folder, run = StateFolder(tmp_path / "state"), tmp_path / "run"
    folder.prepare()
    folder.note_run(run)
    lines: list[str] = []
    with sockets(run, *NAMES, listen=False):
        with folder.locked(), pytest.raises(UpError, match="already running"):
            command.down(folder.path, lines.append)
        command.down(folder.path, lines.append)
    assert lines == [f"`millrace up` had been killed: removed 3 files that it left in {run}"]
    assert list(run.iterdir()) == []
    with pytest.raises(UpError, match="no `millrace up` is running"):
        command.down(folder.path, lines.append)
