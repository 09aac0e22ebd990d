"""The command line: simple_switch_grpc's own examples, our options, every refusal with the option's name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dataplane.errors import ConfigError
from dataplane.rpc.access.tls import TlsFiles
from dataplane.switch.arguments import (
    IO_KINDS,
    PIPELINES,
    AttachedPort,
    DriverSettings,
    SwitchSettings,
    command_line,
    parse_arguments,
)
from dataplane.switch.switch import PortSettings


def test_the_documented_command_line() -> None:
    line = "-i 1@veth0 -i 2@veth1 --device-id 3 --no-p4 -- --grpc-server-addr 127.0.0.1:9560 --cpu-port 254"
    assert parse_arguments(line.split()) == SwitchSettings(
        ports=(AttachedPort(PortSettings(1), "veth0"), AttachedPort(PortSettings(2), "veth1")),
        device_id=3,
        grpc_address="127.0.0.1:9560",
        cpu_port=254,
    )


def test_options_without_meaning_here_are_named_in_one_line() -> None:
    line = "--no-p4 --debugger -L warn --nanolog ipc://x --max-port-count 8 -- --disable-swap --priority-queues 8"
    settings = parse_arguments(line.split())
    assert settings.log_level == "warn"
    (note,) = settings.notes
    assert [name for name in ("--nanolog", "--max-port-count", "--debugger") if name not in note] == []
    assert "--disable-swap" not in note
    assert not parse_arguments(["--no-p4", "--log-console", "--thrift-port", "9090"]).notes


def test_what_forwards() -> None:
    settings = parse_arguments(["--no-p4", "--io", "throughput", "--threads", "4", "--spin-us", "0"])
    assert settings.driver == DriverSettings("compiled", "throughput", 4, 0)
    assert parse_arguments(["--no-p4", "--pipeline", "interpreter"]).driver == DriverSettings("interpreter")


def test_capture_files_are_named_as_bmv2_names_them() -> None:
    settings = parse_arguments(["--no-p4", "-i", "1@eth", "--use-files", "3"])
    assert [port.device for port in settings.ports] == ["eth_in.pcap,eth_out.pcap"]
    assert settings.driver.files_wait_s == 3


def test_rates_delays_and_queues_go_to_their_ports() -> None:
    line = "--no-p4 -i 1@a -i 7@b --port-rate 7:10000000 --port-delay 7:500000 --port-queue 1:9 --port-jitter 7:500"
    assert [port.settings for port in parse_arguments(line.split()).ports] == [
        PortSettings(1, None, 9, 0),
        PortSettings(7, 10_000_000, 64, 500_000, 500),
    ]
    with pytest.raises(ConfigError, match="--port-jitter: that of port 1 exceeds its delay"):
        parse_arguments(["--no-p4", "-i", "1@a", "--port-jitter", "1:1"])


def test_numbers_may_say_their_unit() -> None:
    line = "--no-p4 -i 1@a -i 2@b --port-rate 1:10G --port-delay 1:1.5ms --files-wait 1min --spin-us 1ms"
    settings = parse_arguments([*line.split(), "--port-rate", "2:2.5 Gbit/s", "--dump-packet-data", "1Ki"])
    assert [port.settings for port in settings.ports] == [
        PortSettings(1, 10**10, 64, 1_500_000),
        PortSettings(2, 2_500_000_000, 64, 0),
    ]
    assert (settings.driver.files_wait_s, settings.driver.spin_us, settings.bmv2.dump_bytes) == (60, 1000, 1024)


def test_the_p4info_beside_a_program_is_found(tmp_path: Path) -> None:
    program = tmp_path / "fabric.json"
    with pytest.raises(ConfigError, match=r"fabric\.json: No such file"):
        parse_arguments([str(program)])
    program.touch()
    assert parse_arguments([str(program)]).p4info is None
    tutorials = tmp_path / "fabric.p4.p4info.txtpb"
    tutorials.touch()
    assert parse_arguments([str(program)]).p4info == tutorials
    beside = tmp_path / "fabric.p4info.txtpb"
    beside.touch()
    settings = parse_arguments([str(program)])
    assert (settings.program, settings.p4info) == (program, beside)
    other = tmp_path / "other"
    assert parse_arguments([str(program), "--p4info", str(other)]).p4info == other


def test_entries_file_is_found_beside_a_program_with_p4info(tmp_path: Path) -> None:
    program, beside = tmp_path / "fabric.json", tmp_path / "fabric.entries.txtpb"
    program.touch()
    beside.touch()
    assert parse_arguments([str(program)]).presets is None  # it names tables by the P4Info's ids
    (tmp_path / "fabric.p4info.txtpb").touch()
    assert parse_arguments([str(program)]).presets == beside
    assert parse_arguments([str(program), "--presets", "other.json"]).presets == Path("other.json")
    assert parse_arguments(["--no-p4", str(program)]).presets is None


def test_tls() -> None:
    line = "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k"
    assert parse_arguments(line.split()).tls == TlsFiles(Path("c"), Path("k"))
    mutual = parse_arguments([*line.split(), "--grpc-server-cacert", "a", "--grpc-server-with-client-auth"]).tls
    assert mutual == TlsFiles(Path("c"), Path("k"), Path("a"))
    assert parse_arguments([*line.split(), "--grpc-server-tokens", "t"]).tls == TlsFiles(
        Path("c"), Path("k"), tokens=Path("t")
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("cacert=a", "--grpc-server-ssl: certificates are given without --grpc-server-ssl"),
        ("tokens=t", "--grpc-server-ssl: certificates are given without --grpc-server-ssl"),
        ("with-client-auth", "--grpc-server-ssl: certificates are given without --grpc-server-ssl"),
        ("ssl cert=c", "--grpc-server-key: --grpc-server-ssl needs it"),
        ("ssl cert=c key=k cacert=a", "--grpc-server-cacert: it needs --grpc-server-with-client-auth"),
        ("ssl cert=c key=k with-client-auth", "--grpc-server-cacert: --grpc-server-with-client-auth needs it"),
        ("ssl cert=c key=k cacert=a with-client-auth tokens=t", "--grpc-server-tokens: .*choose one"),
        ("ssl cert=c key=k addr=unix:/s", "--grpc-server-ssl: nothing is encrypted on unix:/s"),
        ("ssl cert=c key=k addr=plain:0.0.0.0:9559", "--grpc-server-ssl: nothing is encrypted on plain:0.0.0.0:9559"),
    ],
)
def test_half_of_tls_is_refused(options: str, problem: str) -> None:
    words = [f"--grpc-server-{option}" for option in options.split()]
    with pytest.raises(ConfigError, match=problem):
        parse_arguments(["--no-p4", *words])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "program: name a bmv2 JSON file"),
        ("--no-p4 -i veth0", "'veth0' is not PORT@DEVICE"),
        ("--no-p4 -i @veth0", "is not PORT@DEVICE"),
        ("--no-p4 -i 1@", "is not PORT@DEVICE"),
        ("--no-p4 -i 1@a -i 1@b", "--interface: port 1 appears twice"),
        ("--no-p4 -i 1@a -i 2@a", "--interface: a is on port 1 and on port 2: a device can have only one port"),
        ("--no-p4 --threads 0", "--threads: must be from 1 to 64, not 0"),
        ("--no-p4 --threads 2 --pipeline interpreter", "--threads: the interpreter uses a single thread"),
        ("--no-p4 --io socket", "argument --io: invalid choice"),
        ("--no-p4 --io netmap", "argument --io: invalid choice"),
        ("--no-p4 -i 512@a", "port 512: port numbers go from 0 to 511"),
        ("--no-p4 -i 255@a", "--cpu-port: port 255 has an interface"),
        ("--no-p4 -i 511@a", "--drop-port: port 511 drops packets"),
        ("--no-p4 --cpu-port 511", "--drop-port: port 511 drops packets"),
        (f"--no-p4 --device-id {1 << 64}", "does not fit P4Runtime's 64 bits"),
        ("--no-p4 -i 1@a --port-rate 2:5", "--port-rate: port 2 has no interface"),
        ("--no-p4 -i 1@a --port-rate 1:5 --port-rate 1:6", "--port-rate: port 1 appears twice"),
        ("--no-p4 -i 1@a --port-rate 1:0", "a rate of 0 bit/s"),
        ("--no-p4 -i 1@a --port-delay 1:-5", "is not PORT:NUMBER"),
        ("--no-p4 -i 1@a --port-queue 1", "is not PORT:NUMBER"),
        ("--no-p4 -i 1@a --port-rate 1:10ms", "'10ms' is not a rate such as 10G, nor a number of bit/s"),
        ("--no-p4 -i 1@a --port-delay 1:0.5ns", "'0.5ns' is not a whole number of ns"),
        ("--no-p4 -i 1@a --port-queue 1:5k", "'5k' is not a non-negative integer"),
        ("--no-p4 --log-file l --log-file-max-size 0", "--log-file-max-size: is 0"),
        ("--no-p4 --files-wait nan", "'nan' is not a time such as 500ms"),
        ("--no-p4 -i 1@a --join-segments 2", "--join-segments: port 2 has no interface"),
        ("--no-p4 -i 1@a --join-segments 1 --join-segments 1", "--join-segments: port 1 appears twice"),
        ("--no-p4 -i 1@a --join-segments 1 --join-segments 1:off", "--join-segments: port 1 appears twice"),
        ("--no-p4 -i 1@a --join-segments on --join-segments off", "--join-segments: on and off for all ports"),
        ("--no-p4 -i 1@a --join-segments maybe", "'maybe' is not auto, on or off, nor PORT:off and the like"),
        ("--no-p4 -i 1@a --join-segments a:on", "'a:on' is not auto, on or off, nor PORT:off and the like"),
        ("--no-p4 -i 1@a --join-segments on --io xdp", "--join-segments: --io xdp bypasses the kernel"),
        ("--no-p4 -i 1@a --join-segments 1 --io xdp", "--join-segments: --io xdp bypasses the kernel"),
        ("--no-p4 -i 1@a --join-segments 1 --io dpdk", "--join-segments: --io dpdk bypasses the kernel"),
        ("--no-p4 --device-id x", "is not a non-negative integer"),
        ("--no-p4 --drop-port 3", "--drop-port: only 511"),
        ("--no-p4 --log-level loud", "invalid choice"),
        ("--no-p4 --grpc-server-cert c", "given without --grpc-server-ssl"),
        ("--no-p4 --grpc-server-ssl --grpc-server-key k", "--grpc-server-cert: --grpc-server-ssl needs it"),
        ("--no-p4 --grpc-server-ssl --grpc-server-cert c", "--grpc-server-key: --grpc-server-ssl needs it"),
        (
            "--no-p4 --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-with-client-auth",
            "--grpc-server-cacert: --grpc-server-with-client-auth needs it",
        ),
        ("--no-p4 --unheard-of", "unrecognized arguments"),
        ("--no-p4 --dev 5", "unrecognized arguments"),
    ],
)
def test_refusals_name_the_place(line: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        parse_arguments(line.split())
    assert "\n" not in str(caught.value)
    assert caught.value.file == "command line"


PORT = st.builds(
    AttachedPort,
    st.builds(
        PortSettings,
        st.integers(0, 254),
        st.none() | st.integers(1, 10**12),
        st.integers(1, 10**6),
        st.integers(0, 10**10),
    ),
    st.sampled_from(["veth0", "p1", "s1-eth1", "in.pcap,out.pcap", "unix:/run/port"]),
)
PATH = st.none() | st.just(Path("/tmp/x y.json"))
DRIVER = st.builds(DriverSettings, io=st.sampled_from(IO_KINDS), threads=st.integers(1, 64)) | st.builds(
    DriverSettings,
    st.sampled_from(PIPELINES),
    st.sampled_from(IO_KINDS),
    spin_us=st.integers(0, 1000),
    files_wait_s=st.integers(0, 9),
)
SETTINGS = st.builds(
    SwitchSettings,
    ports=st.lists(PORT, max_size=4, unique_by=(lambda port: port.settings.number, lambda port: port.device)).map(
        tuple
    ),
    driver=DRIVER,
    device_id=st.integers(0, 1 << 32),
    grpc_address=st.sampled_from(["[::1]:9559", "unix:/run/x/s1.sock"]),
    tls=st.none(),
    cpu_port=st.integers(255, 510),
    log_level=st.sampled_from(["trace", "off"]),
    log_file=PATH,
    ready_file=PATH,
    stats_file=PATH,
    lifeline_fd=st.none() | st.integers(3, 9),
    seed=st.integers(0, 9),
)
TLS = [
    TlsFiles(Path("c"), Path("k")),
    TlsFiles(Path("c"), Path("k"), client_ca=Path("a")),
    TlsFiles(Path("c"), Path("k"), tokens=Path("t")),
]


@hypothesis_settings(deadline=None)
@given(SETTINGS)
def test_a_command_line_reads_back_as_the_same_settings(settings: SwitchSettings) -> None:
    assert parse_arguments(command_line(settings)) == settings


@pytest.mark.parametrize(
    ("words", "joining"),
    [
        ("", "auto auto auto"),
        ("--join-segments 7 --io throughput", "auto on auto"),
        ("--join-segments off", "off off off"),
        ("--join-segments 7:auto --join-segments on --join-segments 8:off", "on auto off"),
        ("--join-segments auto --io xdp", "auto auto auto"),
    ],
)
def test_which_ports_join_segments_reads_back_too(words: str, joining: str) -> None:
    settings = parse_arguments(f"--no-p4 -i 1@a -i 7@b -i 8@c {words}".split())
    assert [port.joining for port in settings.ports] == joining.split()
    assert parse_arguments(command_line(settings)) == settings


@pytest.mark.parametrize("tls", TLS)
def test_tls_reads_back_too(tls: TlsFiles) -> None:
    settings = SwitchSettings(ports=(), grpc_address="[::1]:9559", tls=tls)
    assert parse_arguments(command_line(settings)) == settings


def test_a_program_reads_back_too() -> None:
    settings = SwitchSettings(ports=(), program=Path("a.json"), p4info=Path("b.txtpb"), presets=Path("c.txtpb"))
    assert parse_arguments(command_line(settings)) == settings
