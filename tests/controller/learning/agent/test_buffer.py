"""The experience buffer, by the sentences of the specification."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from controller.learning.agent.buffer import Buffer
from controller.learning.values import Experience

Live = Callable[..., Experience]


def _filled(live: Live, count: int) -> Buffer:
    generator, buffer = np.random.default_rng(1), Buffer(count)
    for _ in range(count):
        buffer.add(live(generator))
    return buffer


def test_training_starts_when_the_buffer_is_full(live: Live) -> None:
    generator, buffer = np.random.default_rng(1), Buffer(8)
    seen = []
    for _ in range(9):
        seen.append(buffer.is_full)
        buffer.add(live(generator))
    assert seen == [False] * 8 + [True]
    assert len(buffer) == 8


def test_duplicates_are_merged_with_their_mean_reward(live: Live) -> None:
    buffer, experience = Buffer(8), live(np.random.default_rng(2))
    for reward in (1.0, 2.0, 6.0):
        buffer.add(replace(experience, reward=reward))
    buffer.add(replace(experience, action=(experience.action + 1) % 4, reward=9.0))
    buffer.drop_duplicates()
    assert [experience.reward for _, experience, _ in buffer] == [3.0, 9.0]
    assert buffer.duplicates == 2


def test_a_full_buffer_of_duplicates_gives_one_batch_of_one(live: Live) -> None:
    buffer, experience = Buffer(1024), live(np.random.default_rng(3))
    for _ in range(1024):
        buffer.add(experience)
    buffer.drop_duplicates()
    drawn = buffer.draw(np.random.default_rng(1), 128, 8)
    assert [len(batch.experiences) for batch in drawn] == [1]


def test_batches_are_disjoint_and_sampled_entries_removable(live: Live) -> None:
    buffer = _filled(live, 1100)
    drawn = buffer.draw(np.random.default_rng(1), 128, 8)
    numbers = [number for batch in drawn for number in batch.numbers]
    assert [len(batch.numbers) for batch in drawn] == [128] * 8
    assert len(set(numbers)) == 1024
    buffer.remove(set(numbers))
    assert len(buffer) == 1100 - 1024
    assert not {number for number, _, _ in buffer} & set(numbers)


def test_prioritised_draw_favours_large_errors_at_less_weight(live: Live) -> None:
    buffer = _filled(live, 100)
    buffer.remember_errors({number: 10.0 if number == 7 else 0.1 for number in range(100)})
    generator = np.random.default_rng(1)
    drawn = [buffer.draw(generator, 10, 1, power=1.0, importance=0.5)[0] for _ in range(100)]
    batches = [batch for batch in drawn if 7 in batch.numbers]
    assert len(batches) > 90
    assert all(batch.importance[batch.numbers.index(7)] == min(batch.importance) for batch in batches)
    assert max(drawn[0].importance) == pytest.approx(1)


def test_incremental_deduplication_equals_a_full_comparison(live: Live) -> None:
    """While experiences are added, drawn and evicted, with many duplicates."""
    generator = np.random.default_rng(9)
    few = [live(generator) for _ in range(6)]
    buffer, all_of_them = Buffer(16), list[tuple[int, Experience]]()
    duplicates = number = 0
    for _ in range(60):
        for _ in range(int(generator.integers(1, 9))):
            experience = replace(few[generator.integers(6)], reward=float(generator.integers(9)))
            buffer.add(experience)
            all_of_them = [*all_of_them, (number, experience)][-16:]
            number += 1
        same: dict[int, list[tuple[int, Experience]]] = {}
        for at, experience in all_of_them:
            same.setdefault(id(experience.observation), []).append((at, experience))
        duplicates += len(all_of_them) - len(same)
        all_of_them = sorted(
            (
                (
                    group[-1][0],
                    replace(group[-1][1], reward=math.fsum(experience.reward for _, experience in group) / len(group)),
                )
                for group in same.values()
            ),
            key=lambda entry: entry[0],
        )
        buffer.drop_duplicates()
        assert [(at, experience.reward) for at, experience, _ in buffer] == [
            (at, experience.reward) for at, experience in all_of_them
        ]
        assert buffer.duplicates == duplicates
        gone = {at for at, _ in all_of_them if generator.random() < 0.3}
        buffer.remove(gone)
        all_of_them = [(at, experience) for at, experience in all_of_them if at not in gone]
