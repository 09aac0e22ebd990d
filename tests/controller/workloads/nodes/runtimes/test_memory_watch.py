"""Cause of a container's death although its control group vanished before its counter was read."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.workloads.nodes.runtimes.podman.memory import MemoryWatch
from dataplane.cgroups import Group

pytestmark = pytest.mark.root

MEMORY = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Group]:
    folder = MEMORY / f"millrace-test-{os.getpid()}"
    if not (MEMORY / "memory.limit_in_bytes").exists():
        pytest.skip("needs control groups of version 1")
    folder.mkdir()
    try:
        (folder / "memory.limit_in_bytes").write_text(str(16 << 20))
        yield Group({"memory": folder}, {"memory": MEMORY}, frozenset())
    finally:
        if folder.exists():
            folder.rmdir()


@pytest.mark.parametrize(("script", "is_short"), [("exec tail /dev/zero", True), ("kill -9 $$", False)])
def test_end_of_group_keeps_its_cause(group: Group, script: str, is_short: bool) -> None:
    folder = group.folders["memory"]

    async def main() -> None:
        with MemoryWatch() as watch:
            watch.add("c", group)
            # The event loop notices nothing until the group is gone.
            ended = subprocess.run(["sh", "-c", f"echo $$ > {folder}/cgroup.procs; {script}"], check=False)
            assert ended.returncode == -9
            folder.rmdir()
            await watch.settle("c")
            assert watch.has_killed("c") is is_short

    asyncio.run(main())
