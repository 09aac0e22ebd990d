"""Warning of a collector that no report reaches."""

from __future__ import annotations

import asyncio

import pytest

from collectors.counters import Count, Counters
from collectors.ingest.silence import watch_for_silence


@pytest.mark.parametrize(
    ("arrives_s", "lines"),
    [
        (5.0, []),
        (14.5, ["no report has arrived on UDP port 32766 for 10 s: ", "the first report has arrived"]),
    ],
)
def test_silence_is_told_once_and_so_is_its_end(arrives_s: float, lines: list[str]) -> None:
    counters, told, now_s = Counters(), list[str](), 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s >= arrives_s:
            counters[Count.REPORTS] = 1

    asyncio.run(watch_for_silence(counters, 32766, "c1", warn=told.append, tell=told.append, sleep=sleep))
    assert len(told) == len(lines)
    assert all(text.startswith(line) for text, line in zip(told, lines, strict=True))
    assert not told or "`millrace fabric exec c1 -- millrace collector serve -s FILE`" in told[0]
