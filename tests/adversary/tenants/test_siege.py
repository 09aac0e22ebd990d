"""Two minutes of a siege by tenants; the longer one, without pauses, is in tests/soak."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.adversary.tenants.besieged import besieged

SECONDS = 120.0
PAUSE_S = 2.0
"""Between the attacks of each attacker, which leaves CPU time to other tests."""


@pytest.mark.root
def test_nothing_that_tenants_try_has_an_effect(tmp_path: Path) -> None:
    async def main() -> None:
        async with besieged(tmp_path) as siege:
            await siege.play(SECONDS, PAUSE_S)
            assert siege.effects == []
            assert siege.forged.keys() == {"read", "change", "pass for", "decide", "babble", "knock", "release", "task"}

    asyncio.run(main())
