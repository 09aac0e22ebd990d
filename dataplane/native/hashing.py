"""The hash over key words: 64 bits, mixed so that any of them can serve as an index or a tag."""

from __future__ import annotations

from dataplane.native.arrays import Array
from dataplane.native.kernels import kernel
from dataplane.native.scalars import u64

SEED = 0x9E3779B97F4A7C15
_FACTOR = 0xD1342543DE82EF95
_FINAL = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Odd constants: of splitmix64 (Steele, Lea, Flood, OOPSLA 2014), and a multiplier from L'Ecuyer's search (1999)."""


@kernel(inline=True)
def mix(state: u64, word: u64) -> u64:
    """Return the state of a hash after one more word: a polynomial, as long keys have to be quick."""
    return state * _FACTOR + word


@kernel(inline=True)
def finish(state: u64) -> u64:
    """Return the hash of the words mixed so far."""
    mixed = (state ^ (state >> 32)) * _FINAL[0]
    mixed = (mixed ^ (mixed >> 29)) * _FINAL[1]
    return mixed ^ (mixed >> 32)


@kernel(inline=True)
def hash_words(key: Array[u64], words: u64) -> u64:
    """Return the hash of a key."""
    state: u64 = SEED
    for word in range(words):
        state = mix(state, key[word])
    return finish(state)


@kernel(inline=True)
def hash_masked(key: Array[u64], masks: Array[u64], places: Array[u64], words: u64) -> u64:
    """Return the hash of the words of a key at `places`, of each the bits that are set in its mask."""
    state: u64 = SEED
    for word in range(words):
        state = mix(state, key[places[word]] & masks[word])
    return finish(state)


@kernel(inline=True)
def same_words(left: Array[u64], right: Array[u64], words: u64) -> bool:
    """Say whether two keys are equal."""
    for word in range(words):  # noqa: SIM110 (kernels have no generators)
        if left[word] != right[word]:
            return False
    return True
