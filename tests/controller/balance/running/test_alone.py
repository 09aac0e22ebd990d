"""One process at a time drives a holder of a pool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controller.balance.errors import LeverError
from controller.balance.running.finding import single_instance

OTHER = """
import sys
from pathlib import Path
from controller.balance.running.finding import single_instance
with single_instance("gpus", "u0", "unix:/run/api.sock", Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
REFUSED = r"^lever units of pool gpus: holder u0 is already driven on this machine \(process {}\)$"


def test_second_process_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with (
            pytest.raises(LeverError, match=REFUSED.format(other.pid)),
            single_instance("gpus", "u0", "unix:/run/../run/api.sock", folder),
        ):
            pass
        other.kill()
    with single_instance("gpus", "u0", "unix:/run/api.sock", folder):
        pass


def test_other_holders_pools_and_services_are_independent(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with single_instance("gpus", "u0", "unix:/run/api.sock", folder):
        for other in (
            ("gpus", "u1", "unix:/run/api.sock"),
            ("cpus", "u0", "unix:/run/api.sock"),
            ("gpus", "u0", "https://there:8443"),
        ):
            with single_instance(*other, folder):
                pass
        with (
            pytest.raises(LeverError, match=REFUSED.format(os.getpid())),
            single_instance("gpus", "u0", "unix:/run/api.sock", folder),
        ):
            pass


def test_a_folder_that_others_may_enter_is_refused_in_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with (
        pytest.raises(LeverError, match=r"lever units of pool gpus: folder .* is open to others"),
        single_instance("gpus", "u0", "unix:/run/api.sock", tmp_path),
    ):
        pass
