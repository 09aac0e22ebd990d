"""Detection of frequently requested names."""

from __future__ import annotations

import random
from collections import Counter

from dataplane.store.names import HotName, Segment, digest
from tests.reference.sketch import Sketch

NAME = digest("/model/layer1")
SEGMENT = Segment(NAME)


def test_hot_name_is_reported_once_an_interval() -> None:
    sketch = Sketch()
    told = [[sketch.ask(SEGMENT, interval=interval, threshold=3) for _ in range(5)] for interval in (1, 2)]
    assert told == [[None, None, HotName(SEGMENT, 3, interval=interval), None, None] for interval in (1, 2)]


def test_segments_are_counted_each() -> None:
    sketch = Sketch()
    assert [sketch.ask(Segment(NAME, number), interval=1, threshold=2) for number in range(1000)] == [None] * 1000
    assert sketch.ask(Segment(NAME, 7), interval=1, threshold=2) == HotName(Segment(NAME, 7), 2, interval=1)


def test_counts_stop_at_their_bound() -> None:
    sketch = Sketch()
    told = [sketch.ask(SEGMENT, interval=1, threshold=65535) for _ in range(65540)]
    assert told.index(HotName(SEGMENT, 65535, interval=1)) == 65534
    assert sum(answer is not None for answer in told) == 1


def test_no_name_that_is_hot_is_missed_and_few_others_are_told() -> None:
    """30,000 requests for 8,000 names, Zipf: a sketch of 3 times 16,384 overestimates few."""
    chance, sketch, threshold = random.Random(1), Sketch(), 40
    names = [chance.getrandbits(128) for _ in range(8000)]
    asked = chance.choices(names, [1 / rank for rank in range(1, 8001)], k=30_000)
    told = {hot.segment.name for name in asked if (hot := sketch.ask(Segment(name), interval=1, threshold=threshold))}
    hot_names = {name for name, count in Counter(asked).items() if count >= threshold}
    assert len(hot_names) > 50
    assert hot_names <= told
    assert len(told - hot_names) <= 2
