"""Header unions: unions.p4 writes into the packet which headers it found valid."""

from __future__ import annotations

import pytest

from dataplane.program.model import HeaderUnion
from tests.dataplane.switch.interpreter.harness import MakeBench, own_program

PROGRAM = own_program("unions")
NOTHING, SMALL, LARGE = 0x00, 0x81, 0x82


def test_the_union_is_declared() -> None:
    [union] = PROGRAM.unions.values()
    assert isinstance(union, HeaderUnion)
    assert len(union.members) == 2


@pytest.mark.parametrize(
    ("kind", "order", "rest", "valid", "left"),
    [
        (0, 0, "aabb", NOTHING, "aabb"),
        (1, 0, "11aa", SMALL, "11aa"),
        (2, 0, "22222222aa", LARGE, "22222222aa"),
        (3, 0, "1122222222aa", LARGE, "22222222aa"),
        (2, 1, "22222222aa", SMALL, "55aa"),
        (1, 2, "11aa", LARGE, "66666666aa"),
        (1, 3, "11aa", NOTHING, "aa"),
        (2, 3, "22222222aa", LARGE, "22222222aa"),
        (2, 4, "22222222aa", SMALL, "77aa"),
        (0, 1, "aa", SMALL, "55aa"),
    ],
    ids=[
        "neither",
        "small",
        "large",
        "the one extracted last",
        "setValid of the other",
        "setValid of the larger other",
        "setInvalid",
        "setInvalid of the other changes nothing",
        "assigned over the other",
        "setValid of one",
    ],
)
def test_at_most_one_is_valid(make_bench: MakeBench, kind: int, order: int, rest: str, valid: int, left: str) -> None:
    data = make_bench("unions").send_one(2, bytes([kind, order, 0]) + bytes.fromhex(rest))
    assert data.hex() == (bytes([kind, order, valid]) + bytes.fromhex(left)).hex()
