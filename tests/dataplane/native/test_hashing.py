"""The hash over key words: secrets drawn per process, so that reading its source does not help an attacker."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from itertools import product

import numpy as np
import pytest

from dataplane.native import Array, Kernel, Library, NativeError, kernel, kernel_library, process_table, u32, u64
from dataplane.native.hashing import PLACES, SECRETS, SEED_VARIABLE, draw_secrets, hash_masked, hash_words

WORD = (1 << 64) - 1
TOP = 1 << 63
SHOW = "from tests.dataplane.native.test_hashing import hash_of; print(hash_of([1, 2]))"


@kernel
def hash_of_words(key: Array[u64], words: u64) -> u64:
    return hash_words(key, words)


@kernel
def hash_of_masked(key: Array[u64], masks: Array[u64], places: Array[u64], words: u64) -> u64:
    return hash_masked(key, masks, places, words)


def library() -> Library:
    return kernel_library(hash_of_words, hash_of_masked)


def hash_of(key: list[int]) -> int:
    return library().bind(hash_of_words)(np.array(key, np.uint64), len(key))


def old_hash(key: list[int], factor: int, seed: int) -> int:
    """The former polynomial: each word gives `state * factor + word`."""
    state = seed
    for word in key:
        state = (state * factor + word) & WORD
    return state


def longest_search(hashes: list[int], places: int) -> int:
    """Return the number of slots that the longest search visits, with these hashes."""
    taken, longest = set[int](), 0
    for mixed in hashes:
        index, looked = mixed % places, 1
        while index in taken:
            index, looked = (index + 1) % places, looked + 1
        taken.add(index)
        longest = max(longest, looked)
    return longest


def test_keys_that_collide_for_every_odd_factor_do_not_any_more() -> None:
    """Keys with an even number of words that differ in their top bits: 4,096 of thirteen words."""
    rng = random.Random(3)
    base = [rng.getrandbits(63) for _ in range(13)]
    flips = [bits for bits in product((0, TOP), repeat=13) if sum(map(bool, bits)) % 2 == 0]
    keys = [[word ^ bit for word, bit in zip(base, bits, strict=True)] for bits in flips]
    assert len(keys) == 4096
    for _ in range(20):
        factor, seed = rng.getrandbits(64) | 1, rng.getrandbits(64)
        assert len({old_hash(key, factor, seed) for key in keys}) == 1
    hashes = [hash_of(key) for key in keys]
    assert len(set(hashes)) == len(keys)
    assert longest_search(hashes, 16_384) <= 32
    assert max(Counter(mixed >> 48 for mixed in hashes).values()) <= 8, "tags, too, are spread"


@pytest.mark.parametrize("words", [1, 2, 5])
@pytest.mark.parametrize("shift", [0, 16, 32, 48, 52])
def test_consecutive_keys_lengthen_no_search(words: int, shift: int) -> None:
    for index in range(words):
        keys = [[number << shift if word == index else 7 for word in range(words)] for number in range(4096)]
        hashes = [hash_of(key) for key in keys]
        assert len(set(hashes)) == len(keys)
        assert longest_search(hashes, 16_384) <= 32


def test_words_of_long_keys_and_their_order_count() -> None:
    key = list(range(1, PLACES + 9))
    swapped = [key[1], key[0], *key[2:]]
    assert len({hash_of(key), hash_of(swapped), hash_of(key[:-1]), hash_of([*key[:-1], 0])}) == 4


def test_a_masked_key_has_the_hash_of_what_its_masks_leave() -> None:
    key, masks = [5, 0xFFFF, 9, TOP | 3], [0xFF00, TOP]
    masked = library().bind(hash_of_masked)(*(np.array(each, np.uint64) for each in (key, masks, [1, 3])), 2)
    assert masked == hash_of([0xFF00, TOP])


def shown_by_a_process(seed: str | None) -> str:
    environment = {name: value for name, value in os.environ.items() if name != SEED_VARIABLE}
    if seed is not None:
        environment[SEED_VARIABLE] = seed
    done = subprocess.run(
        [sys.executable, "-c", SHOW], env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    return done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]


def test_each_process_draws_own_secrets_unless_seeded() -> None:
    """Their code is the same, from the same cache."""
    mine = str(hash_of([1, 2]))
    drawn, *seeded = (shown_by_a_process(seed) for seed in (None, "7", "7"))
    assert seeded[0] == seeded[1]
    assert len({mine, drawn, seeded[0]}) == 3
    assert draw_secrets() != draw_secrets()
    assert draw_secrets(7) == draw_secrets(7)
    assert shown_by_a_process("seven").endswith("MILLRACE_HASH_SEED is 'seven', not a number")


def test_process_table_is_read_in_place_and_keeps_its_length() -> None:
    squares = process_table(u32, "test_squares", (1, 4, 9))

    @kernel
    def third() -> u32:
        return squares[2] + 3

    third_kernel: Kernel[[], int] = third
    call = kernel_library(third_kernel).bind(third_kernel)
    assert call() == 12
    process_table(u32, "test_squares", (1, 4, 10))
    assert call() == 13
    with pytest.raises(NativeError, match="test_squares has 3 numbers, not 2"):
        process_table(u32, "test_squares", (1, 4))
    assert SECRETS is not None
