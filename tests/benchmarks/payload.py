"""Check that payloads of any content arrive unchanged: in virtual time and in the kernel.

Payloads are drawn by a grammar of INT shapes (tests/payloads/shapes.py) into envelopes of every kind, and go from host
to host on the same leaf and over three switches, with both programs and in every mode and mark. Every byte that comes
out is compared; anything missing must be counted as a drop, and its headers must be the reason.

1. Without time (`--count`): bursts through the switches' programs, with the tables of the real controller. Reports end
   where they are made unless `--reports` lets them go to the collector.
2. In virtual time (`--virtual-count`): a fabric under the default controller, with its queues, cables, hellos, reports.
3. In the kernel (`--kernel-minutes`; root): namespaces, the built-in switch, the real daemon, both programs and every
   case for an equal share of the time. Frames go between packet sockets, and sockets talk: TCP requests of 400 bytes,
   IPv4 and IPv6, plain, signed, with data in the SYN; datagrams of 404 bytes, with and without checksum, in full
   frames and in fragments; both through the kernel's own tunnels. Half of the payloads have headers in them, and the
   other side sends them back. A request that is not answered within 30 s is a stall, a datagram after 10 s is lost.

Usage: python tests/benchmarks/payload.py [--count N] [--virtual-count N] [--seconds N] [--round N] [--only-drawn]
                                          [--reports] [--seed N] [--kernel-minutes N] [--frames N] [--rate N]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from dataplane.switch.compiled.pipeline import compiled_pipeline
from tests.payloads.cases import named_cases
from tests.payloads.chain import Chain, Fabric
from tests.payloads.kernel import PROGRAMS
from tests.payloads.oracle import Verdict, try_payloads
from tests.payloads.rounds import Round, kernel_rounds
from tests.payloads.talk import KernelCounts
from tests.payloads.timed import Timed


def carried(
    fabrics: Mapping[str, Fabric], options: argparse.Namespace, count: int, *, reports: bool
) -> dict[str, Verdict]:
    """Return what became of payloads, by program and case."""
    verdicts: dict[str, Verdict] = {}
    end, sent, turn = time.monotonic() + options.seconds, 0, 0
    while sent < count and time.monotonic() < end:
        for name, domain, watches in named_cases():
            for program, fabric in fabrics.items():
                fabric.configure(domain, watches)
                seed = f"{options.seed}/{turn}/{program}/{name}"
                most = min(options.round, max(2, (count - sent) // 2 * 2))
                systematic = turn == 0 and not options.only_drawn
                outcome = try_payloads(fabric, domain, seed, most, systematic=systematic, reports=reports)
                verdicts.setdefault(f"{program}: {name}", Verdict()).add(outcome)
                sent += outcome.sent
            print(f"{sent} payloads: {name}", file=sys.stderr)
            if sent >= count or time.monotonic() >= end:
                break
        turn += 1
    return verdicts


def without_time(options: argparse.Namespace) -> dict[str, Verdict]:
    """Return the outcome of payloads through the programs alone, without time."""
    chains = {name: Chain(compiled_pipeline, aggregating=name != PROGRAMS[0]) for name in PROGRAMS}
    return carried(chains, options, options.count, reports=options.reports)


def in_virtual_time(options: argparse.Namespace) -> dict[str, Verdict]:
    """Return what became of payloads behind queues and cables."""
    fabrics = {name: Timed(compiled_pipeline, aggregating=name != PROGRAMS[0]) for name in PROGRAMS}
    return carried(fabrics, options, options.virtual_count, reports=True)


def in_the_kernel(options: argparse.Namespace, console: Console) -> tuple[KernelCounts, dict[str, Verdict]]:
    """Return what sockets saw, and what became of frames by case; tell how far it is."""
    verdicts: dict[str, Verdict] = {}
    last: Round | None = None
    began = time.monotonic()
    for last in kernel_rounds(options.seed, 60 * options.kernel_minutes, options.frames, options.rate):
        verdicts[last.name] = last.verdict
        print(f"{time.monotonic() - began:.0f} s, {last.name}: {last.counts.faults}", file=sys.stderr)
    assert last is not None
    console.print(f"devices that this kernel has not: {', '.join(last.absent) or 'none'}", highlight=False)
    console.print(f"ports and queues dropped {last.refused}", highlight=False)
    return last.counts, verdicts


def show(console: Console, title: str, verdicts: Mapping[str, Verdict]) -> Verdict:
    """Print what became of payloads, and return all of it together."""
    total, table = Verdict(), Table(title, "payloads", "changed", "dropped for their headers")
    for name, verdict in verdicts.items():
        drops = ", ".join(f"{counter} {count}" for counter, count in sorted(verdict.dropped.items()))
        table.add_row(name, str(verdict.sent), str(verdict.changed), drops)
        total.add(verdict)
    console.print(table)
    for example in total.examples:
        console.print(example, highlight=False, soft_wrap=True)
    return total


def options_of(argv: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="payloads without time")
    parser.add_argument("--virtual-count", type=int, default=1_000_000, help="payloads in virtual time")
    parser.add_argument("--seconds", type=float, default=3600, help="at most so long for either of them")
    parser.add_argument("--round", type=int, default=4096, help="payloads of a case before the next one has its turn")
    parser.add_argument("--only-drawn", action="store_true", help="without every header at every offset first")
    parser.add_argument("--reports", action="store_true", help="let reports go to the collector, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernel-minutes", type=float, default=0, help="of requests, datagrams and frames; needs root")
    parser.add_argument("--frames", type=int, default=512, help="frames between packet sockets in each case")
    parser.add_argument("--rate", type=float, default=200, help="requests, and datagrams, a second at most")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Print tables and, last, one line of JSON."""
    options = options_of(argv)
    console, total = Console(width=140), Verdict()
    for title, part in (("without time", without_time), ("in virtual time", in_virtual_time)):
        began = time.monotonic()
        results = show(console, title, part(options))
        console.print(f"{results.sent} payloads {title} in {time.monotonic() - began:.0f} s", highlight=False)
        total.add(results)
    figures: dict[str, int | None] = {
        "payloads_sent": total.sent,
        "payloads_changed": total.changed,
        "tcp_requests": None,
        "tcp_stalls": None,
    }
    if options.kernel_minutes:
        kernel, verdicts = in_the_kernel(options, console)
        frames = show(console, "frames in the kernel", verdicts)
        console.print(kernel, highlight=False)
        figures["payloads_sent"] = total.sent + frames.sent + kernel.datagrams
        figures["payloads_changed"] = total.changed + frames.changed + kernel.tcp_changed + kernel.changed + kernel.lost
        figures["tcp_requests"], figures["tcp_stalls"] = kernel.tcp_requests, kernel.tcp_stalls
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
