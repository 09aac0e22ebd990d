"""The wheel in empty environments, away from the checkout: the base takes a worker, `demo` takes the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.environments import ROOT, build_wheel, install, run, site_megabytes, site_packages

PROGRAMS = ROOT / "tests" / "dataplane" / "programs"
TEST = ROOT / "tests" / "dataplane" / "stf" / "cases" / "forwarding.stf"
BASE_MB = 350
"""More than a worker's environment takes, and far less than that of all commands."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


def test_the_base_takes_a_worker_and_says_what_a_command_needs(wheel: Path, tmp_path: Path) -> None:
    programs = install(tmp_path / "base", str(wheel))
    worker = "import dataplane.allreduce.client, dataplane.allreduce.membership, dataplane.allreduce.next_hop"
    assert run(programs / "python", "-c", worker, at=tmp_path).stderr == ""
    done = run(programs / "millrace", "demo", at=tmp_path)
    assert (done.returncode, done.stderr) == (1, "millrace demo needs matplotlib: pip install 'millrace-net[demo]'\n")
    packages = site_packages(tmp_path / "base")
    assert site_megabytes(tmp_path / "base") < BASE_MB
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
