"""Under bmv2's names the switch takes what scripts that start bmv2 say."""

from __future__ import annotations

from pathlib import Path

import pytest

from dataplane.errors import ConfigError
from dataplane.switch.arguments import command_line, parse_arguments
from dataplane.switch.drop_in.names import BMV2_NAMES, GRPC_NAME, THRIFT_NAME
from dataplane.switch.drop_in.options import Bmv2Options
from dataplane.switch.process import main


def test_the_command_line_of_the_tutorials(tmp_path: Path) -> None:
    program = tmp_path / "basic.json"
    beside = tmp_path / "basic.p4.p4info.txtpb"
    program.touch()
    beside.touch()
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 --pcap {tmp_path} --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 {program}"
    line += " --log-console --thrift-port 9090 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 510"
    settings = parse_arguments(line.split(), GRPC_NAME)
    assert [(port.settings.number, port.device) for port in settings.ports] == [(1, "s1-eth1"), (2, "s1-eth2")]
    assert (settings.program, settings.p4info) == (program, beside)
    assert settings.bmv2 == Bmv2Options(thrift_port=9090, pcap=tmp_path, tc_rates=True, log_console=True)
    assert (settings.grpc_address, settings.cpu_port) == ("plain:0.0.0.0:50051", 510)
    assert [note.partition(" ")[0] for note in settings.notes] == ["ignored:", "P4Runtime"]


def test_only_bmv2s_names_open_p4runtime_to_others() -> None:
    line = ["--no-p4", "--", "--grpc-server-addr", "0.0.0.0:50051"]
    assert parse_arguments(line).grpc_address == "0.0.0.0:50051"  # which the server refuses
    assert parse_arguments(line, GRPC_NAME).notes[0].startswith("P4Runtime on 0.0.0.0:50051 is not encrypted")
    local = ["--no-p4", "--", "--grpc-server-addr", "127.0.0.1:50051"]
    assert parse_arguments(local, GRPC_NAME).grpc_address == "127.0.0.1:50051"
    encrypted = [*line, "--grpc-server-ssl", "--grpc-server-cert", "c", "--grpc-server-key", "k"]
    settings = parse_arguments(encrypted, GRPC_NAME)
    assert (settings.grpc_address, settings.notes) == ("0.0.0.0:50051", ())


def test_only_bmv2s_names_open_packets_as_messages_to_others() -> None:
    line = ["--no-p4", "--packet-in", "tcp://*:9000"]
    assert parse_arguments(line).bmv2.packet_in == "tcp://*:9000"  # which the listener refuses
    settings = parse_arguments(line, GRPC_NAME)
    assert settings.bmv2.packet_in == "plain:tcp://*:9000"
    assert settings.notes[0].startswith("packets on tcp://*:9000 are open to anyone")
    assert parse_arguments(["--no-p4", "--packet-in", "tcp://127.0.0.1:9000"], GRPC_NAME).notes == ()


def test_what_is_the_case_when_nothing_is_said() -> None:
    assert parse_arguments(["--no-p4"], GRPC_NAME).grpc_address == "127.0.0.1:9559"
    assert parse_arguments(["--no-p4"], GRPC_NAME).bmv2.thrift_port is None
    runtime = parse_arguments(["--no-p4"], THRIFT_NAME)
    assert runtime.grpc_address.startswith("unix:/")
    assert runtime.bmv2.thrift_port == 9090


@pytest.mark.parametrize("name", BMV2_NAMES)
def test_an_interface_may_have_the_number_of_our_cpu_port(name: str) -> None:
    assert parse_arguments(["--no-p4", "-i", "255@a", "-i", "510@b"], name).cpu_port == 509
    with pytest.raises(ConfigError, match="--cpu-port: port 255 has an interface"):
        parse_arguments(["--no-p4", "-i", "255@a", "--cpu-port", "255"], name)


def test_values_may_be_left_out_or_joined_as_boost_has_it() -> None:
    line = "--no-p4 --pcap --device-id=3 -i1@a --log-l warn"
    assert parse_arguments(line.split(), GRPC_NAME).bmv2.pcap == Path()
    with pytest.raises(ConfigError, match="unrecognized arguments: --log-l"):
        parse_arguments(["--no-p4", "--log-l", "warn"])


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("--log-console --log-file x", "--log-console: the log goes to standard output or to --log-file"),
        ("--pcap /nonexistent/x", "--pcap: there is no folder /nonexistent/x"),
        ("--pcap . --io xdp", "--pcap: --io xdp bypasses the kernel"),
        ("--dump-packet-data 9 --io dpdk", "--dump-packet-data: --io dpdk bypasses the kernel"),
        ("--thrift-port 65536", "65536 is not a TCP port"),
        ("--log-file x --log-file-max-size 0", "argument --log-file-max-size: is 0"),
    ],
)
def test_what_cannot_be_is_refused_under_any_name(line: str, problem: str) -> None:
    for name in ("millrace switch", GRPC_NAME):
        with pytest.raises(ConfigError, match=problem):
            parse_arguments(["--no-p4", *line.split()], name)


def test_what_bmv2_only_warns_of_is_a_line() -> None:
    (note,) = parse_arguments(["--no-p4", "--log-file-max-size", "9"], GRPC_NAME).notes
    assert "need --log-file" in note
    (note,) = parse_arguments(["--no-p4", "--priority-queues", "16"], GRPC_NAME).notes
    assert note == "--priority-queues 16: each port has 8"


def test_bmv2s_options_read_back(tmp_path: Path) -> None:
    line = f"--no-p4 --thrift-port 9091 --pcap {tmp_path} --dump-packet-data 64 --log-file {tmp_path}/log"
    settings = parse_arguments([*line.split(), "--log-file-max-size", "1000", "--log-file-max-files", "0"])
    assert settings.bmv2 == Bmv2Options(9091, tmp_path, 64, log_file_bytes=1000, log_files=0)
    assert parse_arguments(command_line(settings)) == settings


@pytest.mark.parametrize(
    ("option", "output"), [("-v", "Millrace "), ("--version", "Millrace "), ("--json-version", "2.")]
)
def test_what_it_is(option: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments([option], GRPC_NAME)
    assert not ended.value.code
    assert capsys.readouterr().out.startswith(output)


def test_an_error_begins_with_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], GRPC_NAME) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("simple_switch_grpc: command line: program: name a bmv2 JSON file")
    assert stderr.count("\n") == 1
