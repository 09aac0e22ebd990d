"""Pairs of daemons fail again and again, in any order: tables are whole, and no stale write is accepted."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pairs.takeovers import Failure, running
from tests.waiting import wait_until

ROUNDS = 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("storage", ["sqlite", "etcd"])
def test_pairs_survive_any_order_of_failures(storage: str, tmp_path: Path) -> None:
    rng = random.Random(39)
    failures = [failure for failure in Failure if storage == "etcd" or failure is not Failure.PARTITION]
    times = []
    with running(tmp_path, storage) as setting:
        pairs = setting.pairs
        for _ in range(ROUNDS):
            kind, failure = rng.choice(["controller", "paths"]), rng.choice(failures)
            failed = pairs.active(kind)
            times.append((setting.take_over(kind, failure), kind, str(failure)))
            pairs.until_settled()
            setting.recover()
            assert failed is not None
            # What was stopped or cut off begins anew, and knows who is active.
            wait_until(lambda failed=failed: pairs.is_standing_by(failed), failed)  # type: ignore[misc]
            pairs.until_settled()
            assert pairs.stale_writes() == []
        assert len(pairs.tokens()) > 1
    print(f"{storage}: takeovers took {sorted(times)}")
