"""Ages of rows, by the time for which there are rows: the clock alone may be a month ahead."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise


class Ages:
    """Ages of files by the times of their newest rows (UNIX seconds), at `now_s`.

    Of the time between two successive ones, and between the newest and now, at most `gap_s` counts. `ahead_s` is how
    far the clock is ahead of the newest if that is more, else 0.
    """

    def __init__(self, ends_s: Iterable[int], now_s: int, gap_s: int) -> None:
        ends = sorted(set(ends_s), reverse=True)
        since_s = max(now_s - ends[0], 0) if ends else 0
        self.ahead_s = since_s if since_s > gap_s else 0
        self._ages = dict.fromkeys(ends[:1], min(since_s, gap_s))
        for later, earlier in pairwise(ends):
            self._ages[earlier] = self._ages[later] + min(later - earlier, gap_s)

    def age_s(self, end_s: int) -> int:
        """Return the age of one of these times; 0 for any other, as of a file that has only just come."""
        return self._ages.get(end_s, 0)
