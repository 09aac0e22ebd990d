"""The sides of the all-reduce benchmark on machines that allow few congestion controls in namespaces."""

from __future__ import annotations

import pytest

from tests.benchmarks.allreduce import Trial, sides_of, speedup


@pytest.mark.parametrize(
    ("allowed", "controls", "missing"),
    [
        (("reno", "cubic", "bbr"), ["cubic", "bbr"], ""),
        (("reno", "bbr"), ["bbr", "reno"], "gloo over bbr and reno, not cubic: this machine allows reno bbr"),
        (("reno",), ["reno"], "gloo over reno, not cubic and bbr: this machine allows reno in namespaces"),
        ((), [], "gloo over nothing, not cubic and bbr: this machine allows nothing in namespaces"),
    ],
)
def test_gloo_uses_what_the_machine_allows_and_says_so(
    allowed: tuple[str, ...], controls: list[str], missing: str
) -> None:
    sides, note = sides_of(allowed)
    assert sides == ("engine", *(f"gloo, {control}" for control in controls))
    assert note.startswith(missing)
    assert bool(note) is bool(missing)
    trials = {side: [Trial(2.0 if side == "engine" else 3.0, 1.0, 0.0)] for side in sides}
    assert speedup(trials) == (1.5 if controls else None)
