"""Ten minutes of a siege by tenants: nothing of others changes or is read, and nodes are answered all the time."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.adversary.tenants.besieged import besieged
from tests.controller.workloads.centres.engines.slurm_cluster import skip_without_slurm
from tests.controller.workloads.nodes.busybox_image import skip_without_containers
from tests.controller.workloads.nodes.conftest import PodmanStorage, storage_in
from tests.left_processes import kill_those_of

SECONDS = float(os.environ.get("MILLRACE_SOAK_S", "600"))
LONGEST_S = 1.0
"""Limit of an answer to a node's report."""

pytestmark = [pytest.mark.slow, pytest.mark.root]


@contextmanager
def folder_that_all_pass() -> Iterator[Path]:
    """Yield a folder that jobs of any user reach, so that only what lies in it keeps them out of itself.

    Not in /tmp or /var/tmp, of which jobs of the local engine have their own.
    """
    folder = Path(tempfile.mkdtemp(prefix="millrace-siege-", dir="/var/lib"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        kill_those_of(folder)
        shutil.rmtree(folder)


@pytest.mark.timeout(SECONDS + 300)
def test_ten_minutes_of_siege_have_no_effect(tmp_path: Path) -> None:
    skip_without_slurm()
    skip_without_containers("runc", "conmon")

    async def attacked(storage: PodmanStorage, folder: Path) -> None:
        begun_s = time.monotonic()
        async with besieged(folder, int.from_bytes(os.urandom(4)), storage, engines=True) as siege:
            print(f"all daemons are there after {time.monotonic() - begun_s:.1f} s")
            await siege.play(SECONDS)
            slowest = siege.slowest(10)
            lines = ", ".join(f"{answer.method} {answer.took_s:.3f} s at {answer.at_s:.0f} s" for answer in slowest)
            print(f"{dict(siege.forged)}; slowest of {len(siege.answers)} answers: {lines}")
            assert siege.effects == []
            assert slowest[0].took_s < LONGEST_S

    (tmp_path / "containers").mkdir()
    with storage_in(tmp_path / "containers") as storage, folder_that_all_pass() as folder:
        asyncio.run(attacked(storage, folder))
