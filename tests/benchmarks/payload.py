"""Whether what hosts send arrives as it was sent, whatever it looks like: payloads without time, sockets in the kernel.

The first part draws payloads by a grammar of INT shapes (tests/payloads/shapes.py) into envelopes of every kind, and
takes them from host to host through the switches' programs, tables from the real controller, on the same leaf and
over three switches, with both programs and in every mode and mark. It compares every byte that comes out; what does
not come out has to be counted as a drop, and its headers have to be the reason. There is no clock: a burst goes from
switch to switch, and reports end where they are made unless `--reports` lets them go to the collector.

The second part (root; `--kernel-minutes`) lets a client send random requests of 400 bytes over TCP, and datagrams of
404, between namespaces over the built-in switch, under the real daemon with default settings; half of them have
headers in them. A request that is not answered within 30 s is a stall.

Usage: python tests/benchmarks/payload.py [--count N] [--seconds N] [--reports] [--seed N] [--kernel-minutes N]
                                          [--rate N]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from controller.tables.int_domain import IntDomain
from controller.tables.int_watch import Watch
from dataplane.switch.compiled.pipeline import compiled_pipeline
from tests.payloads.cases import DOMAINS, MODES, SPECIALS, watches_of
from tests.payloads.chain import Chain
from tests.payloads.kernel import KernelCounts, Talk, kernel_fabric
from tests.payloads.oracle import Verdict, try_payloads

_ROUND = 4_096
"""Payloads of one case before the next one has its turn, so that a run cut short has seen them all."""


def cases() -> Iterator[tuple[str, IntDomain, tuple[Watch, ...]]]:
    """Yield every mark and mode, and what else there is."""
    for mark, domain in DOMAINS.items():
        for mode in MODES:
            yield f"{mark}, {mode}", domain, watches_of(mode)
    for name, (domain, watches) in SPECIALS.items():
        yield name, domain, watches


def without_time(options: argparse.Namespace) -> dict[str, Verdict]:
    """Return what became of payloads, by program and case."""
    verdicts: dict[str, Verdict] = {}
    end, sent, turn = time.monotonic() + options.seconds, 0, 0
    chains = {name: Chain(compiled_pipeline, aggregating=name != "fabric") for name in ("fabric", "fabric_aggregation")}
    while sent < options.count and time.monotonic() < end:
        for name, domain, watches in cases():
            for program, chain in chains.items():
                chain.configure(domain, watches)
                seed = f"{options.seed}/{turn}/{program}/{name}"
                count = min(_ROUND, max(2, (options.count - sent) // 2 * 2))
                found = try_payloads(chain, domain, seed, count, systematic=turn == 0, reports=options.reports)
                verdicts.setdefault(f"{program}: {name}", Verdict()).add(found)
                sent += found.sent
            if sent >= options.count or time.monotonic() >= end:
                break
        turn += 1
    return verdicts


def in_the_kernel(options: argparse.Namespace) -> KernelCounts:
    """Return what sockets saw."""
    with kernel_fabric() as fabric:
        talk = Talk(fabric, options.seed)
        return talk.run(60 * options.kernel_minutes, requests_per_s=options.rate, datagrams_per_s=options.rate)


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="payloads without time")
    parser.add_argument("--seconds", type=float, default=3600, help="at most so long for them")
    parser.add_argument("--reports", action="store_true", help="let reports go to the collector, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel-minutes", type=float, default=0, help="of requests and datagrams; needs root")
    parser.add_argument("--rate", type=float, default=200, help="requests, and datagrams, a second at most")
    options = parser.parse_args(argv)
    began, total = time.monotonic(), Verdict()
    table = Table("", "payloads", "changed", "dropped for their headers")
    for name, verdict in without_time(options).items():
        drops = ", ".join(f"{counter} {count}" for counter, count in sorted(verdict.dropped.items()))
        table.add_row(name, str(verdict.sent), str(verdict.changed), drops)
        total.add(verdict)
    console = Console(width=140)
    console.print(table)
    for example in total.examples:
        console.print(example, highlight=False, soft_wrap=True)
    console.print(f"{total.sent} payloads in {time.monotonic() - began:.0f} s", highlight=False)
    kernel = in_the_kernel(options) if options.kernel_minutes else None
    figures: dict[str, int | None] = {
        "payloads_sent": total.sent,
        "payloads_changed": total.changed,
        "tcp_requests": None,
        "tcp_stalls": None,
    }
    if kernel is not None:
        console.print(kernel, highlight=False)
        figures["payloads_sent"] = total.sent + kernel.datagrams
        figures["payloads_changed"] = total.changed + kernel.tcp_changed + kernel.changed + kernel.lost
        figures["tcp_requests"], figures["tcp_stalls"] = kernel.tcp_requests, kernel.tcp_stalls
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
