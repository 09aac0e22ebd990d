"""Every committed input and its mutations are accepted or refused in one line; `make deep` fuzzes for hours."""

from __future__ import annotations

import os
from random import Random

import pytest

from tests.fuzzing.mutating import mutated
from tests.fuzzing.targets import CORPUS, TARGETS, Target

MUTATIONS = int(os.environ.get("MILLRACE_EXAMPLES", "200"))
"""Number of mutated inputs per target."""
LARGEST_CORPUS_BYTES = 200_000

every_target = pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)


@every_target
def test_committed_inputs_are_read_or_refused(target: Target) -> None:
    taken = 0
    for path in target.corpus():
        try:
            target.run(path.read_bytes())
        except BaseException as error:
            error.add_note(f"of {path.relative_to(CORPUS)}")
            raise
        taken += _is_taken(target, path.read_bytes())
    assert taken, "all inputs are refused: they say nothing of what comes after"


def _is_taken(target: Target, data: bytes) -> bool:
    try:
        target.read(data)
    except target.refuses:
        return False
    return True


@every_target
def test_mutated_inputs_are_read_or_refused(target: Target) -> None:
    inputs = [path.read_bytes() for path in target.corpus()]
    for seed in range(MUTATIONS):
        rng = Random(seed)
        data = mutated(target, rng.choice(inputs), rng)
        try:
            target.run(data)
        except BaseException as error:
            error.add_note(f"seed {seed} of {target.name}: {data.hex() if len(data) < 2000 else len(data)}")
            raise


def test_no_input_is_of_an_unknown_target() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == TARGETS.keys()
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < LARGEST_CORPUS_BYTES
