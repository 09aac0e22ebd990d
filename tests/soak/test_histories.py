"""Ten minutes of trials of the API by its clients' histories, each with every fault twice in a different order."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from tests.adversary.histories.server import running
from tests.adversary.histories.trial import FAULTS, Report, Trial

SECONDS = float(os.environ.get("MILLRACE_SOAK_S", "600"))

pytestmark = pytest.mark.slow


@pytest.mark.timeout(SECONDS + 600)
def test_ten_minutes_of_histories_are_linearizable(tmp_path: Path) -> None:
    seed = int.from_bytes(os.urandom(4))

    async def main() -> Report:
        rng, report = random.Random(seed), Report()
        until_s = time.monotonic() + SECONDS
        async with running(tmp_path) as server:
            while time.monotonic() < until_s and not report.problems:
                report.add(await Trial(server, rng).run((*FAULTS, *FAULTS)))
        return report

    report = asyncio.run(main())
    print(f"seed {seed}: {report.faults.total()} faults, {dict(report.outcomes)}, {report.events} events of watches")
    assert report.problems == [], f"seed {seed}"
    assert report.misdated
