"""`millrace up --detach`: the start's own log, and the reason of one that fails."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controller.apps.up.command import UpOptions, detach, log_files
from controller.apps.up.errors import UpError
from controller.apps.up.state import StateFolder
from dataplane.fabric.live.settings import Time


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StateFolder]:
    # pytest's own folder may be too long for sockets in it.
    with tempfile.TemporaryDirectory(prefix="up") as run:
        monkeypatch.setenv("XDG_RUNTIME_DIR", run)
        folder = StateFolder(tmp_path / "state")
        folder.prepare()
        yield folder


def test_second_start_leaves_the_log_of_the_first(state: StateFolder) -> None:
    state.write_settings("abilene", Time.VIRTUAL)
    told: list[str] = []
    first = state.start_log(datetime.now(UTC))
    with state.locked(), first.open("ab", buffering=0) as running:
        running.write(b"millrace up: ready\n")
        with pytest.raises(UpError, match=r"`millrace up` is already running for .*/state \(process \d+\)$"):
            detach(UpOptions("abilene", None, state.path, None), print, told.append)
        running.write(b"still running\n")
    assert first.read_bytes() == b"millrace up: ready\nstill running\n"
    (second,) = set(state.starts.iterdir()) - {first}
    assert second.read_text(encoding="utf-8").count("\n") == 1
    assert told == [f"millrace up: starting; its log is {second}"]


def test_start_logs_are_bounded_and_apart_from_the_daemons(state: StateFolder) -> None:
    begun = datetime(2030, 1, 1, tzinfo=UTC)
    made = [state.start_log(begun + timedelta(seconds=second)) for second in range(20)]
    assert sorted(state.starts.iterdir()) == made[-16:]
    (state.logs / "paths.log").touch()
    assert log_files(state.path, None) == [state.logs / "paths.log"]
