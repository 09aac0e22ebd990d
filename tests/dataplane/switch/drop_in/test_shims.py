"""Shims: files written, files left alone, and exec of the switch."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.apps.cli.app import app
from dataplane.errors import ConfigError
from dataplane.switch.drop_in.names import BMV2_NAMES
from dataplane.switch.drop_in.shims import install


def test_a_line_for_each_and_once_more_without_a_question(tmp_path: Path) -> None:
    for _ in range(2):
        done = CliRunner().invoke(app, ["install-shims", str(tmp_path)])
        assert done.exit_code == 0
        assert done.stdout.splitlines() == [f"{tmp_path / name}: starts Millrace's switch" for name in BMV2_NAMES]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(BMV2_NAMES)


@pytest.mark.parametrize("name", BMV2_NAMES)
def test_what_is_not_ours_stays_unless_forced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("bmv2")
    with pytest.raises(ConfigError, match=rf"{name}: was not written by Millrace: .*--force"):
        install(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "bmv2"
    assert sum("replacing the previous file" in line for line in install(tmp_path, force=True)) == 1
    assert install(tmp_path)


def test_a_link_to_bmv2_is_replaced_not_what_it_leads_to(tmp_path: Path) -> None:
    real, folder = tmp_path / "real", tmp_path / "bin"
    real.write_text("bmv2")
    folder.mkdir()
    (folder / "simple_switch").symlink_to(real)
    with pytest.raises(ConfigError, match="simple_switch: was not written by Millrace"):
        install(folder)
    install(folder, force=True)
    assert real.read_text() == "bmv2"


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none: there is no such folder"):
        install(tmp_path / "none")


def test_a_shim_becomes_the_switch_wherever_it_is_started(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "logging.py").write_text("raise SystemExit('a module of the folder it was started in')")
    command = [str(tmp_path / "simple_switch_grpc"), "--json-version"]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2.23\n", "")
