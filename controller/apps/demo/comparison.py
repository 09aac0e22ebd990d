"""The same seconds without a path server: the gain of moving flows, in virtual time.

Equal seeds send the same packets at the same times, so the two runs differ only in the routes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.apps.demo.outcome import Outcome, loss_share, mean_delay_ns
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.fabric.hosts import Receiver


@dataclass(frozen=True, slots=True)
class Unsteered:
    """A run on base routes: its receivers by host, and the numbers of the flows that crossed the congested link."""

    receivers: Mapping[str, Receiver]
    crossing: frozenset[int]


@dataclass(frozen=True, slots=True)
class Side:
    """Several flows during the surge: mean one-way delay over all packets, and share of packets lost."""

    delay_mean_ns: float | None
    loss: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Background flows from the surge to the end, with the path server and without.

    `flows` of them, `crossing` those that cross the congested link by base routes; `every` all background flows.
    """

    link: str
    seconds: float
    flows: int
    crossing_without: Side
    crossing_with: Side
    every_without: Side
    every_with: Side


def compare(outcome: Outcome, unsteered: Unsteered) -> Comparison:
    """Compare a run with its twin without a path server."""
    scenario = outcome.scenario
    background = [planned.number for planned in scenario.flows if not planned.surge]
    crossing = [number for number in background if number in unsteered.crossing]

    def side(receivers: Mapping[str, Receiver], numbers: Iterable[int]) -> Side:
        flows = scenario.by_number()
        measured = [receivers[flows[n].flow.dst_host].measure(n, scenario.congest_ns, scenario.end_ns) for n in numbers]
        return Side(mean_delay_ns(measured), loss_share(measured))

    return Comparison(
        link=str(scenario.congested),
        seconds=(scenario.end_ns - scenario.congest_ns) / NS_PER_S,
        flows=len(crossing),
        crossing_without=side(unsteered.receivers, crossing),
        crossing_with=side(outcome.receivers, crossing),
        every_without=side(unsteered.receivers, background),
        every_with=side(outcome.receivers, background),
    )


def gain_line(comparison: Comparison) -> str:
    """Return in one sentence the delay and loss without the path server and with it."""
    without, steered = comparison.crossing_without, comparison.crossing_with
    flows = f"{comparison.flows} background flow{'' if comparison.flows == 1 else 's'}"
    return (
        f"In the {comparison.seconds:g} s of the surge, the {flows} that base routes lead over {comparison.link} had a "
        f"mean delay of {_ms(without)} and lost {without.loss:.1%} of their packets without the path server; with it, "
        f"{_ms(steered)} and {steered.loss:.1%}."
    )


def comparison_figures(comparison: Comparison) -> dict[str, object]:
    """Return the comparison for figures.json."""
    return {
        "link": comparison.link,
        "seconds": comparison.seconds,
        "flows": comparison.flows,
        "without": _figures(comparison.crossing_without),
        "with": _figures(comparison.crossing_with),
        "all_background_without": _figures(comparison.every_without),
        "all_background_with": _figures(comparison.every_with),
    }


def _ms(side: Side) -> str:
    return "no packet" if side.delay_mean_ns is None else f"{side.delay_mean_ns / NS_PER_MS:.1f} ms"


def _figures(side: Side) -> dict[str, float | None]:
    delay_ms = None if side.delay_mean_ns is None else side.delay_mean_ns / NS_PER_MS
    return {"delay_mean_ms": delay_ms, "loss": side.loss}
