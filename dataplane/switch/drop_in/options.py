"""Options that only bmv2's simple_switch_grpc and simple_switch have: implemented, or reported as meaningless here.

Source: src/bm_sim/options_parse.cpp and targets/*/main.cpp of behavioral-model 1.15.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dataplane.config.quantities import SIZE, Unit
from dataplane.version import VERSION

JSON_VERSION: Final = "2.23"
"""The newest tested version of bmv2 JSON; the loader takes any 2.x."""

QUEUES: Final = 8
"""Priority queues of each port, regardless of the requested number."""

PAST_THE_KERNEL: Final = ("xdp", "dpdk")
"""Kinds of ports whose frames no packet socket sees."""

_BYTES: Final = Unit(SIZE, "B")
_DEFAULT_LOG_BYTES: Final = 5 << 20
_DEFAULT_LOG_FILES: Final = 3

_WITHOUT_MEANING: Final = {
    "--nanolog": "there is no binary event log",
    "--debugger-addr": "there is no debugger",
    "--max-port-count": "the number of ports has no limit",
    "--max-mc-groups": "multicast groups have no limit",
    "--max-l1-entries": "multicast groups have no limit",
    "--max-l2-entries": "multicast groups have no limit",
    "--dp-grpc-server-addr": "ports are network devices, UNIX sockets or capture files",
    "--load-modules": "this switch cannot load shared objects",
    "--notifications-addr": "notifications go to P4Runtime's clients",
    "--restore-state": "P4Runtime fills the tables",
}
"""Options with a value, and what exists here instead."""
_FLAGS_WITHOUT_MEANING: Final = {"--debugger": "there is no debugger"}
_ALWAYS_SO: Final = ("--log-flush", "--disable-swap", "--enable-swap")
"""Flags that request what is always the case: each log line is flushed, programs are swapped while packets flow."""


@dataclass(frozen=True, slots=True)
class Bmv2Options:
    """The settings from bmv2's options that have no equivalent among ours.

    thrift_port: port of the Thrift runtime API, None for none. pcap: a folder for a capture file of each port and
    direction, DEVICE_in.pcap and DEVICE_out.pcap. dump_bytes: that many bytes of each packet go to the log. packet_in:
    packets come and go as messages at this nanomsg address, ipc://PATH or tcp://HOST:PORT, not at devices. tc_rates: a
    port sends no faster than tc lets its device, so that packets wait in the switch, where its program sees them, as
    they wait in bmv2. log_console: the log goes to standard output. log_file_bytes: the log's file is rotated at that
    size, 0 for never; log_files: the number of older files kept.
    """

    thrift_port: int | None = None
    pcap: Path | None = None
    dump_bytes: int = 0
    packet_in: str | None = None
    tc_rates: bool = False
    log_console: bool = False
    log_file_bytes: int = 0
    log_files: int = _DEFAULT_LOG_FILES


def whole_in(unit: Unit, least: int = 0) -> Callable[[str], int]:
    """Return a parser of whole numbers of a unit, or of text with its own unit, such as 100us of microseconds."""

    def read(text: str) -> int:
        try:
            number = int(text) if text.isdecimal() else unit.parse_whole(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if number < least:
            raise argparse.ArgumentTypeError(f"is {number}")
        return number

    return read


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option of bmv2's that has no other meaning here to a parser."""
    add = parser.add_argument_group("as bmv2's").add_argument
    add("--thrift-port", type=_port, metavar="N", help="TCP port for the Thrift runtime API")
    pcap_help = "folder for capture files DEVICE_in.pcap and DEVICE_out.pcap of each port; default: the current folder"
    add("--pcap", nargs="?", const=Path(), type=Path, metavar="FOLDER", help=pcap_help)
    dump_help = "log this many bytes of each received or sent packet"
    add("--dump-packet-data", type=whole_in(_BYTES), default=0, metavar="BYTES", help=dump_help)
    packet_help = (
        "exchange packets as messages on a nanomsg PAIR socket at ipc://PATH or tcp://HOST:PORT; -i names port numbers"
    )
    add("--packet-in", metavar="ADDRESS", help=packet_help)
    tc_help = "limit ports to the tc rates of their devices; on under bmv2's names"
    add("--tc-rates", action="store_true", help=tc_help)
    add("--log-console", action="store_true", help="log to standard output instead of standard error")
    add(
        "--log-file-max-size",
        type=whole_in(_BYTES, least=1),
        metavar="BYTES",
        help="rotate the log file at this size",
    )
    files_help = f"number of older log files to keep; default: {_DEFAULT_LOG_FILES}"
    add("--log-file-max-files", type=_natural, metavar="N", help=files_help)
    add("--priority-queues", type=_natural, metavar="N", help=f"ignored: there are always {QUEUES}")
    add("-v", "--version", action=_Say, say=lambda: f"Millrace {VERSION}", help="print the version and exit")
    add("--json-version", action=_Say, say=lambda: JSON_VERSION, help="print the supported bmv2 JSON version and exit")
    for name in _WITHOUT_MEANING:
        add(name, help=argparse.SUPPRESS)
    for name in (*_FLAGS_WITHOUT_MEANING, *_ALWAYS_SO):
        add(name, action="store_true", help=argparse.SUPPRESS)


def read_options(arguments: argparse.Namespace) -> Bmv2Options:
    """Return the requested options."""
    rotates = arguments.log_file_max_size is not None or arguments.log_file_max_files is not None
    return Bmv2Options(
        thrift_port=arguments.thrift_port,
        pcap=arguments.pcap,
        dump_bytes=arguments.dump_packet_data,
        packet_in=arguments.packet_in,
        tc_rates=arguments.tc_rates,
        log_console=arguments.log_console,
        log_file_bytes=(arguments.log_file_max_size or _DEFAULT_LOG_BYTES) if rotates else 0,
        log_files=_DEFAULT_LOG_FILES if arguments.log_file_max_files is None else arguments.log_file_max_files,
    )


def notes(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return a line about requested options that have no effect; none if there are none."""
    named = _WITHOUT_MEANING | _FLAGS_WITHOUT_MEANING
    ignored = [name for name in named if getattr(arguments, name[2:].replace("-", "_")) not in {None, False}]
    lines = [f"ignored: {', '.join(f'{name} ({named[name]})' for name in ignored)}"] if ignored else []
    if arguments.priority_queues is not None and arguments.priority_queues > QUEUES:
        lines.append(f"--priority-queues {arguments.priority_queues}: each port has {QUEUES}")
    if arguments.log_file is None and (arguments.log_file_max_size, arguments.log_file_max_files) != (None, None):
        lines.append("ignored: --log-file-max-size and --log-file-max-files need --log-file")
    return tuple(lines)


def words(options: Bmv2Options) -> list[str]:
    """Return the arguments from which `read_options` reads these options."""
    line: list[str] = []
    if options.thrift_port is not None:
        line += ["--thrift-port", str(options.thrift_port)]
    if options.pcap is not None:
        line += ["--pcap", str(options.pcap)]
    if options.dump_bytes:
        line += ["--dump-packet-data", str(options.dump_bytes)]
    if options.packet_in is not None:
        line += ["--packet-in", options.packet_in]
    if options.tc_rates:
        line += ["--tc-rates"]
    if options.log_console:
        line += ["--log-console"]
    if options.log_file_bytes:
        line += ["--log-file-max-size", str(options.log_file_bytes), "--log-file-max-files", str(options.log_files)]
    return line


def problem(options: Bmv2Options, log_file: Path | None, io: str) -> tuple[str, str] | None:
    """Return an option and what is wrong with it, None if all is well; frames go through ports of a kind `io`."""
    if options.log_console and log_file is not None:
        return "--log-console", "the log goes to standard output or to --log-file, not to both"
    if options.pcap is not None and not options.pcap.is_dir():
        return "--pcap", f"there is no folder {options.pcap}"
    if io in PAST_THE_KERNEL and (options.pcap is not None or options.dump_bytes):
        option = "--dump-packet-data" if options.pcap is None else "--pcap"
        return option, f"--io {io} bypasses the kernel, where frames cannot be captured"
    return None


class _Say(argparse.Action):
    """Prints a line and exits the program."""

    def __init__(self, option_strings: Sequence[str], dest: str, say: Callable[[], str], help: str) -> None:  # noqa: A002
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=help)
        self._say = say

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{self._say()}\n")
        parser.exit()


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative integer")
    return int(text)


def _port(text: str) -> int:
    number = _natural(text)
    if number > 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text} is not a TCP port")
    return number
