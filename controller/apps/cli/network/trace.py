"""`millrace trace`: step-by-step explanation of a packet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dataplane.errors import ConfigError
from dataplane.given import bounded_lines

if TYPE_CHECKING:
    from dataplane.program.model import Program
    from dataplane.switch.switch import Switch
    from dataplane.switch.tracing.steps import PacketTrace

_FRAME_INTERVAL_US = 1_000


class Shape(StrEnum):
    """Output format of `millrace trace`."""

    TEXT = "text"
    JSON = "json"
    SCAPY = "scapy"


def trace(  # noqa: PLR0917 - a command line's options
    program: Annotated[Path, typer.Argument(metavar="PROGRAM.json", help="bmv2 JSON from p4c.")],
    packet: Annotated[
        str, typer.Argument(metavar="PACKET", help="Hex digits, @FILE.pcap (all frames), @FILE.pcap:N (the Nth), or -.")
    ],
    p4info: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: beside the program, or none.")] = None,
    presets: Annotated[
        Path | None, typer.Option(metavar="FILE", help="p4c's entries file; default: beside the program, or none.")
    ] = None,
    entries: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Entries: STF lines, a P4Runtime WriteRequest, runtime JSON.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=510, help="Ingress port of packets.")] = 1,
    only: Annotated[
        str, typer.Option("--filter", metavar="EXPRESSION", help="Print only packets that match this filter.")
    ] = "",
    shape: Annotated[Shape, typer.Option("--format", help="Text, JSON, or Scapy layers.")] = Shape.TEXT,
) -> None:
    """Explain what a program does with a packet: parser, tables, actions, drops, copies, and output bytes."""
    from dataplane.switch.pipeline import Frame  # noqa: PLC0415
    from dataplane.switch.tracing.explainer import Explainer  # noqa: PLC0415
    from dataplane.switch.tracing.filters import parse_filter  # noqa: PLC0415
    from dataplane.switch.tracing.matching import Matcher  # noqa: PLC0415

    switch = _switch(program, p4info, presets, entries)
    loaded, state = switch.program, switch.state
    assert loaded is not None
    assert state is not None
    explainer, show = Explainer(loaded, state), _presenter(shape, loaded)
    wanted = Matcher(loaded, state, parse_filter(only, "--filter"), "--filter") if only else None
    for number, data in enumerate(_frames(packet)):
        frame = Frame(port, data)
        is_wanted = wanted is None or wanted(frame)
        told = explainer.explain(frame, number * _FRAME_INTERVAL_US)  # all of them, since they change the state
        if is_wanted:
            typer.echo(show(told))


def _switch(program: Path, p4info: Path | None, presets: Path | None, entries: Path | None) -> Switch:
    """Return a switch without ports that runs the program, with its entries."""
    from dataplane.clock import VirtualClock  # noqa: PLC0415
    from dataplane.program.files.companions import find_entries, find_p4info  # noqa: PLC0415
    from dataplane.program.loader import load_program  # noqa: PLC0415
    from dataplane.stf.entries import fill_from_file  # noqa: PLC0415
    from dataplane.switch.switch import Switch  # noqa: PLC0415

    p4info = find_p4info(program) if p4info is None else p4info
    if presets is None and p4info is not None:
        presets = find_entries(program)
    switch = Switch(0, [], VirtualClock())
    switch.commit(load_program(program, p4info, entries=presets))
    if entries is not None:
        fill_from_file(switch, entries)
    return switch


def _presenter(shape: Shape, program: Program) -> Callable[[PacketTrace], str]:
    """Return the formatter of traces; raise ConfigError if Scapy is requested and missing."""
    if shape is Shape.SCAPY:
        try:
            from dataplane.scapy.program_layers import ProgramLayers  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ConfigError("needs Scapy: pip install 'millrace-net[scapy]'", file="--format scapy") from error
        return ProgramLayers(program).show
    from dataplane.switch.tracing.showing.formats import TraceFormat  # noqa: PLC0415
    from dataplane.switch.tracing.showing.show import shown  # noqa: PLC0415

    form = TraceFormat(shape.value)
    return lambda told: shown(told, form)


def _frames(packet: str) -> Iterator[bytes]:
    """Yield the frames that an argument names, oldest first; raise ConfigError for an invalid one."""
    if packet == "-":
        # Any byte is a latin-1 character, so that bad input fails as hex, with its line.
        for number, line in enumerate(bounded_lines(sys.stdin.buffer, "<stdin>", encoding="latin-1"), start=1):
            if line.strip():
                yield _from_hex(line, "<stdin>", number)
    elif packet.startswith("@"):
        yield from _captured(packet[1:])
    else:
        yield _from_hex(packet, "PACKET", None)


def _from_hex(text: str, where: str, line: int | None) -> bytes:
    try:
        return bytes.fromhex(text.strip().removeprefix("0x").replace(":", ""))
    except ValueError as error:
        raise ConfigError("a packet is pairs of hex digits", file=where, line=line) from error


def _warn(line: str) -> None:
    typer.echo(f"millrace trace: {line}", err=True)


def _captured(name: str) -> Iterator[bytes]:
    from dataplane.nic.capture.pcap import PcapReader  # noqa: PLC0415

    file, colon, number = name.rpartition(":")
    only = int(number) if colon and number.isascii() and number.isdecimal() else None
    with PcapReader(name if only is None else file) as captures:
        count = 0
        for count, capture in enumerate(captures, start=1):
            if only in {None, count}:
                if not capture.is_whole:
                    kept = f"{len(capture.frame)} of {capture.length} bytes"
                    _warn(f"{captures.path}: frame {count} is cut: {kept}; it is explained as if it ended there")
                yield capture.frame
            if only == count:
                return
        for line in captures.unread():
            _warn(line)
    if only is not None:
        raise ConfigError(f"has no frame {only}, but {count}, counted from 1", file=file)
