"""Keys of flows and packets that collided under constants known to all: now they lengthen no search."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.stitch.pending import hash_packet
from dataplane.native import Array, as_u64, kernel, kernel_library, u64

WORD = (1 << 64) - 1
FIRST, SECOND, SPREAD = 0x9E37_79B9_7F4A_7C15, 0xD6E8_FEB8_6659_FD93, 0x9E37_79B9_7F4A_7C15
COUNT = 4096
PLACES = 4 * COUNT
LONGEST = 32
"""Places that one search may look at; of hashes drawn at random it is 10 to 15 in a quarter-full index."""


@kernel
def hash_key_of(key: Array[u64]) -> u64:
    return hash_key(key)


@kernel
def hash_packet_of(flow_hash: u64, identity: u64) -> u64:
    return hash_packet(flow_hash, as_u64(identity))


_library = kernel_library(hash_key_of, hash_packet_of)
_hash_key, _hash_packet = _library.bind(hash_key_of), _library.bind(hash_packet_of)


def longest_search(hashes: list[int]) -> int:
    """Return how many places the longest search looks at, in an index by open addressing with these hashes."""
    taken: NDArray[np.bool_] = np.zeros(PLACES, np.bool_)
    longest = 0
    for mixed in hashes:
        index, looked = mixed >> 32 & PLACES - 1, 1
        while taken[index]:
            index, looked = index + 1 & PLACES - 1, looked + 1
        taken[index] = True
        longest = max(longest, looked)
    return longest


def old_hash_key(key: list[int]) -> int:
    """Hash an IPv4 flow key as when the constants were the same everywhere; words 0 and 2 are 0."""
    mixed = key[1] * FIRST & WORD
    mixed = (mixed ^ mixed >> 29 ^ key[3]) * SECOND & WORD
    mixed = (mixed ^ mixed >> 31 ^ key[4]) * FIRST & WORD
    return mixed ^ mixed >> 32


def old_hash_packet(flow_hash: int, identity: int) -> int:
    mixed = (flow_hash ^ identity * SPREAD & WORD) * SPREAD & WORD
    return mixed ^ mixed >> 32


def colliding_flows() -> Iterator[list[int]]:
    """Yield flows of IPv4, any addresses and ports, that all had one home: found by trying, as an attacker would."""
    rng = random.Random(5)
    while True:
        key = [0, rng.getrandbits(32), 0, rng.getrandbits(32), rng.getrandbits(32) << 16 | 17 << 8 | 4]
        if old_hash_key(key) >> 32 & 0xFF == 0:
            yield key


def hashes_of(keys: list[list[int]], call: Callable[[NDArray[np.uint64]], int]) -> list[int]:
    return [call(np.array(key, np.uint64)) for key in keys]


def test_flows_that_an_attacker_chose_lengthen_no_search() -> None:
    flows = colliding_flows()
    chosen = [next(flows) for _ in range(COUNT)]
    assert longest_search([old_hash_key(key) for key in chosen]) > COUNT // 64
    assert longest_search(hashes_of(chosen, _hash_key)) <= LONGEST


def test_packets_differing_only_in_ip_id_lengthen_no_search() -> None:
    """Its bits are the identity's highest: a product by an odd number leaves all the others as they are."""
    identities = [number << 50 | 0x1234 for number in range(COUNT)]
    flow_hash = _hash_key(np.array([0, 0x0A000001, 0, 0x0A000002, 7 << 32 | 17 << 8 | 4], np.uint64))
    assert longest_search([old_hash_packet(flow_hash, identity) for identity in identities]) == COUNT
    assert longest_search([_hash_packet(flow_hash, identity) for identity in identities]) <= LONGEST


def test_every_bit_of_a_flow_counts() -> None:
    """IPv4 takes fewer products than IPv6, and two words share one: none of them may be left out."""
    ipv4 = [0, 0x0A000001, 0, 0x0A000002, 0x1234_5678_1104]
    ipv6 = [0xFD00 << 48, 0x0A000001 << 32 | 7, 0xFD01 << 48, 0x0A000002 << 32 | 9, 0x1234_5678_1106]
    for key, words in ((ipv4, {1: range(32), 3: range(32)}), (ipv6, {word: range(64) for word in range(4)})):
        changed = [key]
        for word, bits in {**words, 4: range(8, 48)}.items():
            changed += [[*key[:word], key[word] ^ 1 << bit, *key[word + 1 :]] for bit in bits]
        assert len(set(hashes_of(changed, _hash_key))) == len(changed)
