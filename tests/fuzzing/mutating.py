"""Mutations of inputs: of their bytes, and of values in JSON."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fuzzing.targets import SEPARATOR, Target

_NUMBERS = (0, 1, -1, 2, 255, 256, 65535, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 63, 1 << 64, 10**400, 0.5, 1e308, -0.0)
_TEXTS = ("", "0", "0x", "-0x1", "0x" + "f" * 70, "..", "/", "a/../b", "\0", "\ud800", "\x1b[2J", "@1", "x" * 300)
_LEAVES: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, None, True, False, [], {}, [[]], {"": None})
_INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 4, b"\x80" * 9, b"\0" * 8, b"\x7f" + b"\xff" * 7)
_MOST_STEPS = 4


def mutated(target: Target, data: bytes, rng: Random) -> bytes:
    """Return a mutated input."""
    for _ in range(rng.randint(1, _MOST_STEPS)):
        is_json = target.is_json and rng.random() < 0.7
        changed = _in_json(data, rng) if is_json else None
        data = changed if changed is not None else _in_bytes(data, rng)
    return data


def _in_bytes(data: bytes, rng: Random) -> bytes:
    start = rng.randint(0, len(data))
    end = min(len(data), start + rng.choice((0, 1, 1, 2, 4, 8, 40)))
    match rng.randrange(6):
        case 0:
            return data[:start] + bytes([rng.randrange(256)]) + data[end:]
        case 1:
            return data[:start] + rng.choice(_INTERESTING) + data[end:]
        case 2:
            return data[:start] + data[end:]
        case 3:
            return data[:start] + data[start:end] * rng.choice((2, 3, 50)) + data[end:]
        case 4:
            return data[:start]
        case _:
            position = rng.randint(0, len(data))
            return data[:start] + data[position : position + rng.randint(1, 40)] + data[start:]


def _in_json(data: bytes, rng: Random) -> bytes | None:
    """Return an input with one value of one of its parts changed; None where no part is JSON."""
    parts = data.split(SEPARATOR)
    number = rng.randrange(len(parts))
    try:
        root = json.loads(parts[number])
        if not isinstance(root, dict | list) or not root:
            return None
        _change(root, rng)
        parts[number] = json.dumps(root, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        return None
    return SEPARATOR.join(parts)


def _change(root: Any, rng: Random) -> None:
    """Walk down to a value, and exchange, remove, copy or move it."""
    node = root
    while True:
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key: Any = rng.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        break
    match rng.randrange(7):
        case 0:
            del node[key]
        case 1 if isinstance(node, list):
            node.append(node[key])
        case 2:
            node[key] = node[rng.choice(keys)]
        case 3 if isinstance(node[key], int):
            node[key] += rng.choice((-1, 1))
        case 4:
            node[key] = [node[key]]
        case 5 if isinstance(node[key], str):
            text = node[key]
            at = rng.randint(0, len(text))
            node[key] = text[:at] + rng.choice(_TEXTS) + text[at + 1 :]
        case _:
            node[key] = rng.choice(_LEAVES)
