"""A fabric with an attacker against the same fabric without: forged frames, effects and cost.

`measure` plays one of three: in virtual time; there without the filter at the edge; in the kernel, with real daemons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.adversary.attacks import Kind
from tests.adversary.comparing import effects, lost
from tests.adversary.siege import besieging
from tests.adversary.world import World
from tests.benchmarks.parts import Figures, IncompleteError

EACH: Final = 10_000
"""Datagrams of each kind."""
QUICK: Final = 1_000
_NS_EACH: Final = 16_000
"""Virtual time per datagram: the attacker's cable carries all of them; its queue drops none."""
_SHOWN: Final = 20
_SHOWING: Final = ("records", "known", "late", "repeated")
"""Figures that reports passing the edge do affect."""


def measure(where: str, *, quick: bool = False) -> Figures:
    """Return the figures of a run, `virtual`, `past_edge` or `kernel`."""
    forged = (QUICK if quick else EACH) * len(Kind)
    return {"virtual": _virtual, "past_edge": _past_edge, "kernel": _kernel}[where](forged)


def _virtual(forged: int) -> Figures:
    sent, changed, missing = _compared(forged)
    return _figures("virtual", forged, sent, changed, missing)


def _past_edge(forged: int) -> Figures:
    sent, changed, missing = _compared(forged, edge=False)
    _show("past_edge", sent, changed, missing)
    records = sum(changed.get(name, 0) for name in _SHOWING)
    return {"past_edge_records": records, "past_edge_effects": sum(changed.values()) - records}


def _compared(forged: int, *, edge: bool = True) -> tuple[Counter[Kind], Mapping[str, int], Mapping[str, int]]:
    duration_ns = forged * _NS_EACH
    calm, world = World().play(0, duration_ns), World()
    if not edge:
        world.open_edge()
    besieged = world.play(forged, duration_ns)
    return world.forged, effects(calm, besieged), lost(calm, besieged)


def _kernel(forged: int) -> Figures:
    with besieging() as siege:
        siege.attack(forged // 10, siege.target())  # what grows once has grown
        siege.forged.clear()
        damage = siege.play(forged)
    for effect in damage.effects[:_SHOWN]:
        Console().print(effect, markup=False)
    return _figures("kernel", forged, siege.forged, {"effects": len(damage.effects)}, damage.lost)


def _figures(
    where: str, forged: int, sent: Counter[Kind], changed: Mapping[str, int], missing: Mapping[str, int]
) -> Figures:
    _show(where, sent, changed, missing)
    figures = {
        f"{where}_forged_sent": sent.total(),
        f"{where}_forged_effects": sum(changed.values()),
        f"{where}_genuine_lost": sum(missing.values()),
    }
    least = min(sent[kind] for kind in Kind)
    if least < forged // len(Kind):
        raise IncompleteError(f"only {least} datagrams of a kind were sent", figures)
    return figures


def _show(where: str, sent: Counter[Kind], changed: Mapping[str, int], missing: Mapping[str, int]) -> None:
    table = Table("kind", "datagrams", title=where)
    for kind in Kind:
        table.add_row(kind, str(sent[kind]))
    Console().print(table)
    for what, counted in (("effects", changed), ("lost", missing)):
        counts = ", ".join(f"{name} {number}" for name, number in counted.items() if number) or "none"
        Console().print(f"{what}: {counts}")
