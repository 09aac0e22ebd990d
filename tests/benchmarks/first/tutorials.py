"""Exercises of p4lang's tutorials with the same results on our switch and on bmv2 (tests/soak/tutorials.py)."""

from __future__ import annotations

import sys

from tests.soak.tutorials import EXERCISES, bench, has_bmv2, is_same, lacking


def measure(*, quick: bool) -> dict[str, float | None]:
    """Return `tutorials_same` and `tutorials_total`, None where something that they need is not here."""
    missing = lacking() or (None if has_bmv2() else "simple_switch_grpc on the PATH")
    if missing is not None:
        sys.stderr.write(f"tutorials: needs {missing}\n")
        return {"tutorials_same": None, "tutorials_total": None}
    names = list(EXERCISES)[:1] if quick else list(EXERCISES)
    with bench() as made:
        same = sum(is_same(made, name) for name in names)
    return {"tutorials_same": same, "tutorials_total": len(names)}
