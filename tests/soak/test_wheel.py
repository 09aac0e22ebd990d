"""The wheel in empty environments, away from the checkout: the base takes a worker, `demo` takes the commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UV = ROOT / ".ci" / "uv"
PROGRAMS = ROOT / "tests" / "dataplane" / "programs"
TEST = ROOT / "tests" / "dataplane" / "stf" / "cases" / "forwarding.stf"
BASE_MB = 350
"""More than a worker's environment takes, and far less than that of all commands."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def run(*command: object, at: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command that finds nothing of the checkout by itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=at, env=environment)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def install(folder: Path, wheel: str) -> Path:
    """Make an environment of a wheel and what it asks for, in the lock's versions; return its folder of programs."""
    for command in (
        ("venv", "--python", sys.executable, folder),
        ("pip", "install", "--python", folder, "--constraint", "requirements/base.txt", wheel),
    ):
        done = run(UV, *command)
        assert done.returncode == 0, done.stderr
    return folder / "bin"


def test_the_base_takes_a_worker_and_says_what_a_command_needs(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "base", str(wheel))
    worker = "import dataplane.allreduce.client, dataplane.allreduce.membership, dataplane.allreduce.next_hop"
    assert run(programs / "python", "-c", worker, at=tmp_path).stderr == ""
    done = run(programs / "millrace", "demo", at=tmp_path)
    assert (done.returncode, done.stderr) == (1, "millrace demo needs typer: pip install 'millrace-net[demo]'\n")
    packages = next((tmp_path / "base" / "lib").glob("python3*")) / "site-packages"
    assert sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) < BASE_MB * 1_000_000
    assert [
        name for name in ("dataplane", "collectors", "controller") if not (packages / name / "py.typed").exists()
    ] == []


def test_commands_run_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "demo", f"{wheel}[demo]")
    demo = run(programs / "millrace", "demo", at=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert (tmp_path / "demo-out" / "network.svg").exists()
    names = (PROGRAMS / "forwarding.json", PROGRAMS / "forwarding.p4info.txtpb", TEST)
    stf = run(programs / "millrace", "stf", *names, at=tmp_path)
    assert stf.returncode == 0, stf.stdout + stf.stderr
