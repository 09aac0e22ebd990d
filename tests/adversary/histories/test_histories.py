"""A short trial of the API by its clients' histories; the long one is in tests/soak."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from tests.adversary.histories.server import running
from tests.adversary.histories.trial import FAULTS, Report, Trial
from tests.controller.apiserver.storage.etcd_process import Etcd

SEED = 1


def tried(folder: Path, storage: str | None = None) -> Report:
    async def main() -> Report:
        async with running(folder, storage) as server:
            return await Trial(server, random.Random(SEED)).run(FAULTS)

    return asyncio.run(main())


def is_right(report: Report) -> None:
    """Nothing was wrong, and it was a trial."""
    assert report.problems == []
    assert report.faults.keys() == set(FAULTS)
    assert report.outcomes.keys() == {"done", "absent", "stale", "lost"}
    assert report.events > 0
    assert report.misdated


def test_histories_over_sqlite_are_linearizable(tmp_path: Path) -> None:
    is_right(tried(tmp_path))


def test_histories_over_etcd_are_linearizable(tmp_path: Path) -> None:
    (tmp_path / "etcd").mkdir()
    with Etcd(tmp_path / "etcd") as address:
        is_right(tried(tmp_path, f"{{etcd: {{addresses: ['{address}']}}}}"))
