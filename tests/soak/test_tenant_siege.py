"""Ten minutes of a siege by tenants: nothing of others changes or is read, and nodes are answered all the time."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.adversary.tenants.besieged import besieged
from tests.controller.nodes.conftest import PodmanStorage, storage_in

SECONDS = float(os.environ.get("MILLRACE_SOAK_S", "600"))
LONGEST_S = 1.0
"""That a report of a node may take."""

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.mark.timeout(SECONDS + 300)
def test_ten_minutes_of_siege_have_no_effect(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "containers").mkdir()
        with storage_in(tmp_path / "containers") as storage:
            await attacked(storage)

    async def attacked(storage: PodmanStorage) -> None:
        async with besieged(tmp_path, int.from_bytes(os.urandom(4)), storage) as siege:
            await siege.play(SECONDS)
            print(f"{dict(siege.forged)}, the slowest report took {siege.slowest_s:.3f} s")
            assert siege.effects == []
            assert siege.slowest_s < LONGEST_S

    asyncio.run(main())
