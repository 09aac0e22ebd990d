"""`millrace demo int`: send one packet, print and draw its headers on every cable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from controller.apps.demo.folder import make_folder
from controller.apps.demo.packet.drawing import Column, draw
from controller.apps.demo.packet.journey import Journey, Seen, ends, travel
from controller.apps.demo.packet.parts import Part, changed, parts_of, report_parts
from controller.common.console import plain_or_terminal
from controller.network.tables.telemetry.int_watch import Mode
from dataplane.topology.file import load_topology
from dataplane.wire import ethernet, ipv4


@dataclass(frozen=True, slots=True)
class PacketOptions:
    """Command-line options."""

    topology: str
    src: str | None
    dst: str | None
    mode: Mode
    out: Path
    seed: int


def run(options: PacketOptions) -> Journey:
    """Run the demo and show it; raise a one-line MillraceError if it cannot run."""
    topology = load_topology(options.topology)
    src, dst = ends(topology, options.src, options.dst)
    make_folder(options.out)
    journey = travel(topology, src, dst, mode=options.mode, seed=options.seed)
    columns = list(columns_of(journey))
    console = plain_or_terminal()
    heading = f"One packet from {src} to {dst} in {topology.name}, telemetry of mode {journey.mode}"
    console.print(heading, highlight=False, soft_wrap=True)
    for column in columns:
        _print(console, column)
    console.print(_sum(journey), highlight=False, soft_wrap=True)
    png, svg = draw(heading, columns, options.out / "packet")
    console.print(f"Pictures: {png} and {svg}", highlight=False, soft_wrap=True)
    return journey


def columns_of(journey: Journey) -> Iterator[Column]:
    """Yield the packet's headers for each cable, then those of each report."""
    topology, before = journey.topology, None
    for seen in journey.seen:
        parts = parts_of(seen.frame, topology)
        after_us = (seen.arrived_ns - journey.sent_ns) / 1000
        title, note = f"{seen.link.src} > {seen.link.dst}", f"arrives after {after_us:.1f} us"
        yield Column(title, parts if before is None else changed(parts, before), note, is_first=before is None)
        before = parts
    for seen in journey.reports:
        parts = report_parts(seen.frame, topology)
        yield Column(f"report {dict(parts[3].fields)['from']} > {seen.link.dst}", parts, is_report=True)


def _print(console: Console, column: Column) -> None:
    console.print(f"\n{column.title}: {column.about}", highlight=False, soft_wrap=True, markup=False)
    for part in column.parts:
        console.print(f"  {_line(part)}", highlight=False, soft_wrap=True, markup=False)


def _line(part: Part) -> str:
    mark = "+" if part.is_new else "~" if part.was else " "
    return f"{mark} {part.title:<16} {part.size:>4}  {'; '.join(part.lines())}".rstrip()


def _sum(journey: Journey) -> str:
    sizes = [len(seen.frame) for seen in journey.seen]
    reported = sum(len(seen.frame) for seen in journey.reports)
    switches = len(journey.path) - 2
    many = f"{len(journey.reports)} report{'s' if len(journey.reports) != 1 else ''}"
    same = "as it was sent" if _behind_ip(journey.seen[0]) == _behind_ip(journey.seen[-1]) else "changed"
    return (
        f"\n{switches} switches; {max(sizes) - sizes[0]} bytes of telemetry in the packet at most, "
        f"{many} of {reported} bytes in all. {journey.path[-1]} received the IP payload {same}."
    )


def _behind_ip(seen: Seen) -> bytes:
    return seen.frame[ethernet.SIZE + ipv4.MIN_SIZE :]
