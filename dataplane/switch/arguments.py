"""The command line of `millrace switch`: options named like those of bmv2's simple_switch_grpc, and our own.

simple_switch_grpc expects its target's options after `--`; here every option may be on either side of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn, TypeVar

from dataplane.config.quantities import RATE, TIME, Unit
from dataplane.errors import ConfigError, SwitchError
from dataplane.program.files.companions import find_entries, find_p4info
from dataplane.rpc.access.tls import TlsFiles
from dataplane.rpc.addresses import is_plain, is_unix
from dataplane.switch.counters import DEFAULT_CPU_PORT
from dataplane.switch.drop_in import options as bmv2_options
from dataplane.switch.drop_in.names import (
    BMV2_NAMES,
    DEFAULT_GRPC_ADDRESS,
    OWN_NAME,
    default_grpc_address,
    default_thrift_port,
    opened,
    opened_messages,
)
from dataplane.switch.drop_in.options import Bmv2Options, whole_in
from dataplane.switch.ports.joining import Joining, read_joining
from dataplane.switch.tracing.live.options import TraceSettings, add_trace_options, trace_settings, trace_words
from dataplane.switch.traffic import PortSettings, deflect_session_of
from dataplane.switch.v1model import DROP_PORT

T = TypeVar("T")

COMMAND_LINE = "command line"
"""Source named in errors in place of a file."""

PIPELINES = ("compiled", "interpreter")
KERNEL_RINGS = ("ring", "throughput")
IO_KINDS = (*KERNEL_RINGS, "xdp", "dpdk")
DEFAULT_SPIN_US = 20
MAX_THREADS = 64

LOG_LEVELS = ("trace", "debug", "info", "warn", "error", "off")
_OF_TLS = ("with_client_auth", "cert", "key", "cacert", "tokens")
_RATE = Unit(RATE, "bit/s")
_DELAY = Unit(TIME, "ns")
_MESSAGE_PORTS = tuple((number, "") for number in range(16))
"""The ports of --packet-in if no others are named."""


MESSAGES = "message:"
"""Prefix of the number of a port whose packets are messages."""


@dataclass(frozen=True, slots=True)
class AttachedPort:
    """A switch port and its attachment: a network device, IN.pcap,OUT.pcap, unix:PATH, or messages."""

    settings: PortSettings
    device: str
    joining: Joining = Joining.AUTO


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """The forwarding engine: the compiled pipeline or the interpreter, over which kind of port, with how many threads.

    A worker spins for `spin_us` at most before it sleeps; capture files are read from `files_wait_s` after the switch
    is ready.
    """

    pipeline: str = "compiled"
    io: str = "ring"
    threads: int = 1
    spin_us: int = DEFAULT_SPIN_US
    files_wait_s: int = 0


@dataclass(frozen=True, slots=True)
class SwitchSettings:
    """Everything that a switch process needs to know on startup.

    Without a `program` a controller pushes one; with a program and no `p4info` packets are forwarded, and P4Runtime has
    no pipeline until a controller pushes one. `presets` is p4c's entries file. `ready_file` appears once the switch
    responds; `stats_file` holds all counters as JSON and is replaced about once a second; the process stops when the
    other end of the pipe `lifeline_fd` is closed, so that no switch outlives its parent. `notes` are lines for the log:
    requested features that are not provided.
    """

    ports: tuple[AttachedPort, ...]
    device_id: int = 0
    program: Path | None = None
    p4info: Path | None = None
    presets: Path | None = None
    grpc_address: str = DEFAULT_GRPC_ADDRESS
    tls: TlsFiles | None = None
    cpu_port: int = DEFAULT_CPU_PORT
    log_level: str = "info"
    log_file: Path | None = None
    ready_file: Path | None = None
    stats_file: Path | None = None
    metrics_port: int | None = None
    lifeline_fd: int | None = None
    seed: int = 0
    deflect_session: int | None = None
    driver: DriverSettings = DriverSettings()
    bmv2: Bmv2Options = field(default_factory=Bmv2Options)
    notes: tuple[str, ...] = field(default=(), compare=False)
    trace: TraceSettings | None = None


def parse_arguments(argv: Sequence[str], name: str = OWN_NAME) -> SwitchSettings:
    """Return the settings for a command line (without the command's name); raise ConfigError.

    `name` is the command's name: under one of bmv2's names, options that bmv2's users expect are not refused.
    """
    words = list(argv)
    if "--" in words:
        words.remove("--")
    options = _make_parser(name).parse_args(words)
    if options.drop_port != DROP_PORT:
        raise _wrong("--drop-port", f"only {DROP_PORT} is supported")
    program, p4info, presets = _find_program(options)
    try:
        ports = _join_ports(options)
    except SwitchError as error:
        raise ConfigError(str(error), file=COMMAND_LINE) from error
    cpu_port = _find_cpu_port(options, ports, name)
    bmv2 = bmv2_options.read_options(options)
    wrong = bmv2_options.problem(bmv2, options.log_file, options.io)
    if wrong is not None:
        raise _wrong(*wrong)
    tls = _find_tls(options)
    grpc_address, note = opened(options.grpc_server_addr, name, has_tls=tls is not None)
    packet_in, messages_note = opened_messages(bmv2.packet_in, name)
    return SwitchSettings(
        ports=ports,
        device_id=options.device_id,
        program=program,
        p4info=p4info,
        presets=presets,
        grpc_address=grpc_address,
        tls=tls,
        cpu_port=cpu_port,
        log_level=options.log_level,
        log_file=options.log_file,
        ready_file=options.ready_file,
        stats_file=options.stats_file,
        metrics_port=options.metrics_port,
        lifeline_fd=options.lifeline_fd,
        seed=options.seed,
        deflect_session=options.deflect_session,
        driver=_driver(options),
        bmv2=replace(bmv2, packet_in=packet_in),
        notes=bmv2_options.notes(options) + tuple(line for line in (note, messages_note) if line is not None),
        trace=trace_settings(options),
    )


_DESCRIPTION = """
Run a compiled P4 program (v1model) between network devices and answer P4Runtime. All options of bmv2's
simple_switch_grpc are accepted, before or after `--`; a log line names those that have no effect here.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise instead of printing argparse's usage and exiting."""
        raise ConfigError(message, file=COMMAND_LINE)


def _make_parser(name: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=name, allow_abbrev=name in BMV2_NAMES, description=_DESCRIPTION)
    add = parser.add_argument
    rate_help = "rate at which the port sends, such as 1:10G; default: no limit"
    delay_help = "propagation delay of the cable behind the port, such as 1:5ms; default: 0"
    jitter_help = "maximum deviation from that delay, such as 1:200us; default: 0"
    queue_help = "length of each of the port's eight queues; default: 64"
    add("program", nargs="?", type=Path, help="bmv2 JSON of a compiled program")
    attached = "a port and its network device, or IN.pcap,OUT.pcap (capture files), or unix:PATH (a socket); repeatable"
    add("--p4info", type=Path, help="the program's P4Info; default: PROGRAM.p4info.txtpb next to the program")
    presets_help = "p4c's entries file (--p4runtime-entries-files); default: PROGRAM.entries.txtpb next to the program"
    add("--presets", type=Path, metavar="FILE", help=presets_help)
    add("--no-p4", action="store_true", help="start without a program; a controller pushes one")
    add("-i", "--interface", action="append", default=[], type=_interface, metavar="PORT@DEVICE", help=attached)
    add("--device-id", type=_device_id, default=0, metavar="N", help="P4Runtime device id; default: 0")
    add("--port-rate", action="append", default=[], type=_pair_of(_RATE), metavar="PORT:BIT/S", help=rate_help)
    add("--port-delay", action="append", default=[], type=_pair_of(_DELAY), metavar="PORT:NS", help=delay_help)
    add("--port-jitter", action="append", default=[], type=_pair_of(_DELAY), metavar="PORT:NS", help=jitter_help)
    add("--port-queue", action="append", default=[], type=_pair_of(None), metavar="PORT:FRAMES", help=queue_help)
    join_help = (
        "join consecutive TCP segments into one packet, on all ports or on one; auto (default): while only a host's"
        " TCP/IP stack receives them, as far as the switch can see; PORT alone: on; repeatable"
    )
    add("--join-segments", action="append", default=[], type=read_joining, metavar="[PORT:]auto|on|off", help=join_help)
    add("-L", "--log-level", choices=LOG_LEVELS, default="info", help="default: info")
    add("--log-file", type=Path, help="log to a file instead of stderr")
    add("--ready-file", type=Path, help="file created when the switch is ready and removed when it stops")
    add("--stats-file", type=Path, help="file that receives all counters as JSON once per second")
    metrics_help = "TCP port for Prometheus, on loopback; 0: any free port, which the log names"
    add("--metrics-port", type=_non_negative, metavar="N", help=metrics_help)
    add("--lifeline-fd", type=_non_negative, help="stop when the other end of this inherited pipe is closed")
    add("--seed", type=int, default=0, help="seed for the program's random numbers; default: 0")
    add(
        "--deflect-session",
        type=_clone_session,
        metavar="N",
        help="clone session for packets that a full queue drops",
    )
    _add_driver_options(parser)
    add_trace_options(parser)
    _add_target_options(parser)
    bmv2_options.add_options(parser)
    parser.set_defaults(
        grpc_server_addr=default_grpc_address(name), thrift_port=default_thrift_port(name), tc_rates=name in BMV2_NAMES
    )
    return parser


def _add_driver_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("forwarding").add_argument
    add(
        "--pipeline", choices=PIPELINES, default="compiled", help="machine code (default), or the reference interpreter"
    )
    io_help = (
        "how frames are exchanged with devices: ring (default): kernel rings, least delay; throughput: kernel rings in"
        " blocks, least work per frame, about 1 ms more delay; xdp: AF_XDP; dpdk: DPDK on AF_PACKET"
    )
    add("--io", choices=IO_KINDS, default="ring", help=io_help)
    add(
        "--threads",
        type=_non_negative,
        default=1,
        metavar="N",
        help="worker threads, each with a queue of every port; default: 1",
    )
    spin_help = f"how long a worker polls for frames before it sleeps; default: {DEFAULT_SPIN_US}"
    wait_help = "begin to read capture files this long after the start; default: 0"
    add("--files-wait", type=whole_in(Unit(TIME, "s")), default=0, metavar="SECONDS", help=wait_help)
    add("--spin-us", type=whole_in(Unit(TIME, "us")), default=DEFAULT_SPIN_US, metavar="N", help=spin_help)


def _driver(options: argparse.Namespace) -> DriverSettings:
    if not 1 <= options.threads <= MAX_THREADS:
        raise _wrong("--threads", f"must be from 1 to {MAX_THREADS}, not {options.threads}")
    if options.threads > 1 and options.pipeline == "interpreter":
        raise _wrong("--threads", "the interpreter uses a single thread; use --pipeline compiled for more")
    wait_s = options.files_wait if options.use_files is None else options.use_files
    return DriverSettings(options.pipeline, options.io, options.threads, options.spin_us, wait_s)


def _add_target_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--grpc-server-addr",
        help=f"HOST:PORT or unix:PATH, plain:HOST:PORT beyond loopback without TLS; default: {DEFAULT_GRPC_ADDRESS}",
    )
    add("--grpc-server-ssl", action="store_true", help="TLS; needs certificate and key")
    add("--grpc-server-cacert", type=Path, help="PEM file of the authority that signs clients' certificates")
    add("--grpc-server-cert", type=Path, help="PEM file of the server's certificate")
    add("--grpc-server-key", type=Path, help="PEM file of the server's key, without passphrase")
    add("--grpc-server-with-client-auth", action="store_true", help="require clients' certificates")
    tokens_help = "require one of these tokens (millrace certs token) instead of clients' certificates"
    add("--grpc-server-tokens", type=Path, metavar="FILE", help=tokens_help)
    add(
        "--cpu-port",
        type=_non_negative,
        help=f"port for packet-in and packet-out; default: {DEFAULT_CPU_PORT}",
    )
    add("--drop-port", type=_non_negative, default=DROP_PORT, help=f"only {DROP_PORT}")
    files_help = "as --files-wait, and PORT@NAME reads NAME_in.pcap and writes NAME_out.pcap"
    add("--use-files", type=whole_in(Unit(TIME, "s")), metavar="SECONDS", help=files_help)


def _find_program(options: argparse.Namespace) -> tuple[Path | None, Path | None, Path | None]:
    """Return the program, its P4Info and its entries file, named or found next to it."""
    program: Path | None = options.program
    p4info: Path | None = options.p4info
    presets: Path | None = options.presets
    if options.no_p4:
        return None, None, None
    if program is None:
        raise _wrong("program", "name a bmv2 JSON file, or start with --no-p4")
    if p4info is None and not program.exists():
        raise ConfigError("No such file or directory", file=str(program))
    p4info = find_p4info(program) if p4info is None else p4info
    if presets is None and p4info is not None:
        presets = find_entries(program)
    return program, p4info, presets


def _find_cpu_port(options: argparse.Namespace, ports: Sequence[AttachedPort], name: str) -> int:
    """Return the CPU port; if none is named and bmv2 would have none, it is one without an interface."""
    numbers = {port.settings.number for port in ports}
    cpu_port: int | None = options.cpu_port
    if cpu_port is None:
        free = (number for number in range(DROP_PORT - 1, 0, -1) if number not in numbers)
        cpu_port = next(free) if name in BMV2_NAMES and DEFAULT_CPU_PORT in numbers else DEFAULT_CPU_PORT
    if cpu_port in numbers:
        raise _wrong("--cpu-port", f"port {cpu_port} has an interface already")
    if DROP_PORT in {cpu_port, *numbers}:
        raise _wrong("--drop-port", f"port {DROP_PORT} drops packets: it can be neither an interface nor the CPU port")
    return cpu_port


def _join_ports(options: argparse.Namespace) -> tuple[AttachedPort, ...]:
    if options.packet_in is not None and options.use_files is not None:
        raise _wrong("--packet-in", "packets come from messages or from --use-files, not both")
    devices: dict[int, str] = {}
    for number, name in options.interface or ([] if options.packet_in is None else _MESSAGE_PORTS):
        device = name if options.use_files is None else f"{name}_in.pcap,{name}_out.pcap"
        device = device if options.packet_in is None else f"{MESSAGES}{number}"
        if number in devices:
            raise _wrong("--interface", f"port {number} appears twice")
        other = next((port for port, taken in devices.items() if taken == device), None)
        if other is not None:
            raise _wrong(
                "--interface", f"{device} is on port {other} and on port {number}: a device can have only one port"
            )
        devices[number] = device
    rates = _by_port("--port-rate", options.port_rate, devices)
    delays = _by_port("--port-delay", options.port_delay, devices)
    jitters = _by_port("--port-jitter", options.port_jitter, devices)
    queues = _by_port("--port-queue", options.port_queue, devices)
    early = next((number for number, jitter_ns in jitters.items() if jitter_ns > delays.get(number, 0)), None)
    if early is not None:
        raise _wrong("--port-jitter", f"that of port {early} exceeds its delay")
    joining = _joining_by_port(options, devices)
    return tuple(
        AttachedPort(
            PortSettings(
                number, rates.get(number), queues.get(number, 64), delays.get(number, 0), jitters.get(number, 0)
            ),
            device,
            joining=joining[number],
        )
        for number, device in devices.items()
    )


def _joining_by_port(options: argparse.Namespace, devices: dict[int, str]) -> dict[int, Joining]:
    """Return each port's setting; a setting for one port overrides that for all."""
    of_all = [joining for number, joining in options.join_segments if number is None]
    of_one = [(number, joining) for number, joining in options.join_segments if number is not None]
    if len(of_all) > 1:
        raise _wrong("--join-segments", f"{' and '.join(of_all)} for all ports: choose one")
    if options.io not in KERNEL_RINGS and Joining.ON in (*of_all, *(joining for _, joining in of_one)):
        raise _wrong("--join-segments", f"--io {options.io} bypasses the kernel, which therefore joins no segments")
    return dict.fromkeys(devices, *(of_all or (Joining.AUTO,))) | _by_port("--join-segments", of_one, devices)


def _by_port(option: str, pairs: Sequence[tuple[int, T]], devices: dict[int, str]) -> dict[int, T]:
    values: dict[int, T] = {}
    for number, value in pairs:
        if number not in devices:
            raise _wrong(option, f"port {number} has no interface")
        if number in values:
            raise _wrong(option, f"port {number} appears twice")
        values[number] = value
    return values


def _find_tls(options: argparse.Namespace) -> TlsFiles | None:
    if not options.grpc_server_ssl:
        if any(getattr(options, f"grpc_server_{name}") for name in _OF_TLS):
            raise _wrong("--grpc-server-ssl", "certificates are given without --grpc-server-ssl")
        return None
    if is_unix(options.grpc_server_addr) or is_plain(options.grpc_server_addr):
        raise _wrong("--grpc-server-ssl", f"nothing is encrypted on {options.grpc_server_addr}")
    for option in ("grpc_server_cert", "grpc_server_key"):
        if getattr(options, option) is None:
            raise _wrong(f"--{option.replace('_', '-')}", "--grpc-server-ssl needs it")
    if options.grpc_server_with_client_auth and options.grpc_server_cacert is None:
        raise _wrong("--grpc-server-cacert", "--grpc-server-with-client-auth needs it")
    if options.grpc_server_cacert is not None and not options.grpc_server_with_client_auth:
        raise _wrong("--grpc-server-cacert", "it needs --grpc-server-with-client-auth")
    if options.grpc_server_tokens is not None and options.grpc_server_with_client_auth:
        raise _wrong("--grpc-server-tokens", "clients show either tokens or certificates: choose one")
    return TlsFiles(
        certificate=options.grpc_server_cert,
        private_key=options.grpc_server_key,
        client_ca=options.grpc_server_cacert,
        tokens=options.grpc_server_tokens,
    )


def _interface(text: str) -> tuple[int, str]:
    number, separator, device = text.partition("@")
    if not separator or not device or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT@DEVICE, as in 1@veth0")
    return int(number), device


def _pair_of(unit: Unit | None) -> Callable[[str], tuple[int, int]]:
    """Return a parser of PORT:NUMBER, where the number may carry its unit."""
    example = "1:64" if unit is None else f"1:{unit.kind.example}"

    def read(text: str) -> tuple[int, int]:
        number, separator, value = text.partition(":")
        if not separator or not number.isdecimal() or not value[:1].isdecimal():
            raise argparse.ArgumentTypeError(f"{text!r} is not PORT:NUMBER, as in {example}")
        return int(number), _non_negative(value) if unit is None else whole_in(unit)(value)

    return read


def _device_id(text: str) -> int:
    number = _non_negative(text)
    if number >= 1 << 64:
        raise argparse.ArgumentTypeError(f"{text} does not fit P4Runtime's 64 bits")
    return number


def _clone_session(text: str) -> int:
    try:
        return deflect_session_of(_non_negative(text))
    except SwitchError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _non_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a non-negative integer")
    return int(text)


def _wrong(option: str, problem: str) -> ConfigError:
    return ConfigError(problem, file=COMMAND_LINE, key=option)


def command_line(settings: SwitchSettings) -> list[str]:
    """Return the arguments from which `parse_arguments` reads these settings."""
    words = bmv2_command_line(settings)
    own: list[str] = []
    for port in settings.ports:
        number = port.settings.number
        if port.settings.rate_bps is not None:
            own += ["--port-rate", f"{number}:{port.settings.rate_bps}"]
        own += ["--port-delay", f"{number}:{port.settings.delay_ns}"]
        if port.settings.jitter_ns:
            own += ["--port-jitter", f"{number}:{port.settings.jitter_ns}"]
        own += ["--port-queue", f"{number}:{port.settings.queue_frames}"]
        own += ["--join-segments", f"{number}:{port.joining}"] if port.joining is not Joining.AUTO else []
    files = {
        "--p4info": settings.p4info,
        "--presets": settings.presets,
        "--ready-file": settings.ready_file,
        "--stats-file": settings.stats_file,
    }
    for option, path in files.items():
        if path is not None:
            own += [option, str(path)]
    if settings.metrics_port is not None:
        own += ["--metrics-port", str(settings.metrics_port)]
    if settings.lifeline_fd is not None:
        own += ["--lifeline-fd", str(settings.lifeline_fd)]
    own += [*_driver_words(settings.driver), *trace_words(settings.trace)]
    if settings.deflect_session is not None:
        own += ["--deflect-session", str(settings.deflect_session)]
    if settings.tls is not None and settings.tls.tokens is not None:
        own += ["--grpc-server-tokens", str(settings.tls.tokens)]
    own += bmv2_options.words(settings.bmv2)
    return [*own, "--seed", str(settings.seed), *words]


def _driver_words(driver: DriverSettings) -> list[str]:
    words = ["--pipeline", driver.pipeline, "--threads", str(driver.threads), "--spin-us", str(driver.spin_us)]
    return [*words, "--io", driver.io, "--files-wait", str(driver.files_wait_s)]


def bmv2_command_line(settings: SwitchSettings) -> list[str]:
    """Return the part of the settings that simple_switch_grpc knows, as its arguments."""
    words = ["--device-id", str(settings.device_id), "--log-level", settings.log_level]
    if settings.log_file is not None:
        words += ["--log-file", str(settings.log_file)]
    for port in settings.ports:
        words += ["-i", f"{port.settings.number}@{port.device}"]
    words += ["--no-p4"] if settings.program is None else [str(settings.program)]
    words += ["--", "--grpc-server-addr", settings.grpc_address, "--cpu-port", str(settings.cpu_port)]
    tls = settings.tls
    if tls is not None:
        words += ["--grpc-server-ssl", "--grpc-server-cert", str(tls.certificate)]
        words += ["--grpc-server-key", str(tls.private_key)]
        if tls.client_ca is not None:
            words += ["--grpc-server-cacert", str(tls.client_ca), "--grpc-server-with-client-auth"]
    return words
