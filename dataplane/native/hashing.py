"""Hash of key words: 64 bits, any of which can serve as an index or a tag, with secrets random per process.

Each word contributes a product of its halves, each with a per-position secret added: NH (Black, Halevi, Krawczyk,
Krovetz, Rogaway, "UMAC: fast and secure message authentication", CRYPTO 1999), for which any two keys of one length
collide with a probability of 2^-32 over the secrets. A secret start would not suffice: a hash that multiplies the
state by an odd factor per word has collisions for every such factor, if words differ in their top bits. Compiled code
is kept on disk, so the secrets are not in the code but in the process (`process_table`).

MILLRACE_HASH_SEED, a number, makes them the same in each process, to reproduce the order of everything that depends on
them: which software queue of a device takes a flow, and which entry is evicted first. Nothing on the wire depends on
them.
"""

from __future__ import annotations

import os
import random
from typing import Final

from dataplane.native.arrays import Array
from dataplane.native.constants import process_table
from dataplane.native.errors import NativeError
from dataplane.native.intrinsics import as_u32, as_u64
from dataplane.native.kernels import kernel
from dataplane.native.scalars import u64

SEED_VARIABLE: Final = "MILLRACE_HASH_SEED"
PLACES = 64
"""Number of word positions with a secret; longer keys reuse secrets."""
_FINAL = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Odd constants, of splitmix64 (Steele, Lea, Flood, OOPSLA 2014)."""


def draw_secrets(seed: int | None = None) -> tuple[int, ...]:
    """Return a secret for each word position, from the machine's randomness or from a seed."""
    source = random.SystemRandom() if seed is None else random.Random(seed)
    return tuple(source.getrandbits(64) for _ in range(PLACES))


def _seed() -> int | None:
    text = os.environ.get(SEED_VARIABLE)
    try:
        return None if text is None else int(text)
    except ValueError:
        raise NativeError(f"{SEED_VARIABLE} is {text!r}, not a number") from None


SECRETS = process_table(u64, "millrace_hash_secrets", draw_secrets(_seed()))


@kernel(inline=True)
def part(word: u64, position: u64) -> u64:
    """Return the contribution of a word at a position of a key to the state of its hash."""
    secret: u64 = SECRETS[position & (PLACES - 1)]
    return as_u64(as_u32(word) + as_u32(secret)) * as_u64(as_u32(word >> 32) + as_u32(secret >> 32))


@kernel(inline=True)
def finish(state: u64) -> u64:
    """Return the hash of a key from the sum of its parts."""
    mixed = (state ^ (state >> 32)) * _FINAL[0]
    mixed = (mixed ^ (mixed >> 29)) * _FINAL[1]
    return mixed ^ (mixed >> 32)


@kernel(inline=True)
def finish_high(state: u64) -> u64:
    """Return a hash of which only the high half is good, for callers that use no more; saves one product."""
    return (state ^ (state >> 32)) * _FINAL[0]


@kernel(inline=True)
def hash_words(key: Array[u64], words: u64) -> u64:
    """Return the hash of a key."""
    state: u64 = 0
    for word in range(words):
        state += part(key[word], word)
    return finish(state)


@kernel(inline=True)
def hash_masked(key: Array[u64], masks: Array[u64], places: Array[u64], words: u64) -> u64:
    """Return the hash of a key's words at `places`, each masked."""
    state: u64 = 0
    for word in range(words):
        state += part(key[places[word]] & masks[word], word)
    return finish(state)


@kernel(inline=True)
def same_words(left: Array[u64], right: Array[u64], words: u64) -> bool:
    """Return whether two keys are equal."""
    for word in range(words):  # noqa: SIM110 (kernels have no generators)
        if left[word] != right[word]:
            return False
    return True
