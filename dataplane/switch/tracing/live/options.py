"""A switch's command line options for tracing packets."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from dataplane.switch.tracing.filters import parse_filter

FILTER = "--trace-filter"
DEFAULT_PACKETS, DEFAULT_PER_SECOND = 1_000, 10


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Selection of live packets to explain, limits in total and per second, and output.

    An empty `filter` matches all packets; without a `file` traces go to the log.
    """

    filter: str = ""
    file: Path | None = None
    packets: int = DEFAULT_PACKETS
    per_second: int = DEFAULT_PER_SECOND


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """Add the options; any of them, or the log level trace, turns tracing on."""
    add = parser.add_argument_group("explaining packets").add_argument
    add(
        FILTER,
        metavar="EXPRESSION",
        help="trace packets that match, such as: ipv4.dst_addr==10.0.0.2 && ingress_port==1",
    )
    add(
        "--trace-file",
        type=Path,
        metavar="FILE",
        help="write traces to this file, as JSON lines if it is named *.jsonl; default: the log",
    )
    add(
        "--trace-limit",
        type=_positive,
        metavar="N",
        help=f"maximum number of packets in total; default: {DEFAULT_PACKETS}",
    )
    add(
        "--trace-rate",
        type=_positive,
        metavar="N",
        help=f"maximum number of packets per second; default: {DEFAULT_PER_SECOND}",
    )


def trace_settings(arguments: argparse.Namespace) -> TraceSettings | None:
    """Return the settings of a command line; None if nothing is to be explained. Raises ConfigError."""
    given = (arguments.trace_filter, arguments.trace_file, arguments.trace_limit, arguments.trace_rate)
    if all(value is None for value in given):
        return None
    if arguments.trace_filter:
        parse_filter(arguments.trace_filter, FILTER)
    return TraceSettings(
        arguments.trace_filter or "",
        arguments.trace_file,
        arguments.trace_limit or DEFAULT_PACKETS,
        arguments.trace_rate or DEFAULT_PER_SECOND,
    )


def trace_words(settings: TraceSettings | None) -> list[str]:
    """Return the equivalent command line."""
    if settings is None:
        return []
    words = ["--trace-limit", str(settings.packets), "--trace-rate", str(settings.per_second)]
    words += [FILTER, settings.filter] if settings.filter else []
    return words if settings.file is None else [*words, "--trace-file", str(settings.file)]


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)
