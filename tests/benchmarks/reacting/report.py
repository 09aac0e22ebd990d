"""Report reactions and noise: tables for people, figures for the last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from tests.benchmarks.reacting.surges import Reaction

_NS_PER_MS = 1e6


def milliseconds(nanoseconds: float | None) -> float | None:
    """Return ns as ms with three decimals."""
    return None if nanoseconds is None else round(nanoseconds / _NS_PER_MS, 3)


def reaction_table(reactions: Sequence[Reaction], least: Mapping[str, float]) -> Table:
    """Return a row a run; `least` is by topology the utilisation that the surge leaves at best."""
    table = Table(title="Surges in virtual time; delays are the victims'", title_justify="left")
    columns = ("topology", "at best", "seed", "victims", "first packet ms", "relieved ms", "moves", "before ms")
    for name in (*columns, "after ms", "without moves ms", "ratio", "twice", "elsewhere", "slower"):
        table.add_column(name, justify="left" if name == "topology" else "right")
    for r in reactions:
        ratio = None if r.ratio is None else round(r.ratio, 2)
        times = (_tenths(ns) for ns in (r.moved_ns, r.relieved_ns))
        delays = (_tenths(ns) for ns in (r.before_ns, r.after_ns, r.congested_ns))
        head = (r.topology, f"{least[r.topology]:.0%}", r.seed, r.victims, *times, r.moves, *delays)
        table.add_row(*(str(cell) for cell in (*head, ratio, r.twice, r.elsewhere, len(r.slower))))
    return table


def figures(reactions: Sequence[Reaction]) -> dict[str, float | int | None]:
    """Return the figures of runs with spare capacity around the surge."""
    ratios = [reaction.ratio for reaction in reactions if reaction.ratio is not None]
    count = len(reactions)
    return {
        "moved_share": round(sum(reaction.in_time for reaction in reactions) / count, 3) if count else None,
        "worst_delay_ratio": round(max(ratios), 3) if ratios else None,
        "moved_twice": sum(reaction.twice for reaction in reactions),
        "slower_flows": sum(len(reaction.slower) for reaction in reactions),
    }


def _tenths(nanoseconds: float | None) -> str:
    return "-" if nanoseconds is None else f"{nanoseconds / _NS_PER_MS:.1f}"
