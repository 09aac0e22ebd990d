"""`millrace switch` as a process: starts, forwards, reports, survives a lost port, and stops when it should."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc
from pyroute2 import IPRoute

from dataplane.clock import NS_PER_S
from dataplane.fabric.kernel import namespaces
from dataplane.fabric.kernel.links import CableEnd, bring_up, connect
from dataplane.fabric.kernel.manifest import held_namespaces
from dataplane.nic import PcapReader, PcapWriter, PortKind, open_port
from dataplane.nic.devices.far_end import PACKET_SOCKET, PROMISCUOUS, SAME_NAMESPACE
from dataplane.switch.process import main
from dataplane.switch.waiting import Waiter
from tests.network_namespace import network_namespace
from tests.waiting import HANG_S, wait_until

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "p4" / "build"
PROGRAMS = ROOT / "tests" / "dataplane" / "programs"


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with pairs a1-b1 and a2-b2: the switch has the a, tests the b."""
    with network_namespace(("a1", "b1"), ("a2", "b2")) as name:
        yield name


class Running:
    """A switch process in a namespace with everything that it writes."""

    def __init__(
        self,
        namespace: str,
        folder: Path,
        *arguments: str,
        before: Callable[[], None] = lambda: None,
        by: Sequence[str] = (),
    ) -> None:
        before()
        self.ready, self.stats, self.socket = folder / "ready", folder / "stats.json", folder / "p4.sock"
        self.log = folder / "log"
        read_end, self.lifeline = os.pipe()
        argv = [*by, sys.executable, "-m", "dataplane.switch.process", "-i", "1@a1", "-i", "2@a2", "--device-id", "5"]
        argv += ["--ready-file", str(self.ready), "--stats-file", str(self.stats), "--lifeline-fd", str(read_end)]
        argv += [*arguments, "--", "--grpc-server-addr", f"unix:{self.socket}", "--cpu-port", "255"]
        with self.log.open("wb") as log:
            self.process = namespaces.start(
                namespace, argv, stderr=log, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)}, pass_fds=(read_end,)
            )
        os.close(read_end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self) -> None:
        wait_until(lambda: self.ready.exists() or self.process.poll() is not None, "never ready")
        assert self.process.poll() is None, self.log.read_text()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG_S)
        os.close(self.lifeline)


@pytest.fixture(params=["compiled", "interpreter"])
def switch(request: pytest.FixtureRequest, namespace: str, tmp_path: Path) -> Iterator[Running]:
    with Running(namespace, tmp_path, str(BUILD / "fabric.json"), "--pipeline", request.param) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module", params=["compiled", "interpreter"])
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A switch for tests that neither end it nor change its ports."""
    arguments = (str(BUILD / "fabric.json"), "--pipeline", request.param)
    with (
        network_namespace(("a1", "b1"), ("a2", "b2")) as namespace,
        Running(namespace, tmp_path_factory.mktemp("switch"), *arguments) as running,
    ):
        running.wait_ready()
        yield running


@pytest.mark.root
def test_it_says_why_ports_do_not_join_segments(undisturbed: Running) -> None:
    wait_until(lambda: said_of_segments(undisturbed) == [SAME_NAMESPACE] * 2, "ports do not say why")


@pytest.mark.root
def test_switch_joins_segments_until_a_packet_socket_reads_there(namespace: str, tmp_path: Path) -> None:
    host = f"{namespace}-host"
    with (
        held_namespaces(host),
        Running(
            namespace,
            tmp_path,
            "--no-p4",
            "-i",
            "3@up",
            "-i",
            "4@off",
            "--join-segments",
            "4:off",
            before=lambda: add_host(namespace, host),
        ) as running,
    ):
        running.wait_ready()
        wait_until(lambda: said_of_segments(running) == [SAME_NAMESPACE] * 2 + ["", "--join-segments off"])

        def read() -> socket.socket:
            return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))

        def flags(promiscuous: int) -> None:
            with IPRoute() as netlink:
                netlink.link("set", index=socket.if_nametoindex("up"), flags=promiscuous, change=0x100)

        namespaces.call(host, lambda: flags(0x100))
        wait_until(lambda: said_of_segments(running)[2] == PROMISCUOUS)
        assert f"port 3 (up): TCP segments are sent one by one: {PROMISCUOUS}" in running.log.read_text()
        with namespaces.call(host, read):
            namespaces.call(host, lambda: flags(0))
            wait_until(lambda: said_of_segments(running)[2] == PACKET_SOCKET)
        namespaces.call(host, lambda: flags(0x100))
        namespaces.call(host, lambda: flags(0))
        wait_until(lambda: "port 3 (up): TCP segments are joined" in running.log.read_text())


@pytest.mark.root
def test_service_rights_alone_forward_without_joining_segments(namespace: str, tmp_path: Path) -> None:
    unit = (ROOT / "deploy/systemd/millrace-switch@.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    rights = [name.removeprefix("CAP_").lower() for name in line.partition("=")[2].split()]
    bounded = ["setpriv", "--bounding-set", ",".join(["-all", *(f"+{right}" for right in rights)])]
    host = f"{namespace}-host"
    arguments = (str(BUILD / "fabric.json"), "-i", "3@up", "-i", "4@off")
    with (
        held_namespaces(host),
        Running(namespace, tmp_path, *arguments, before=lambda: add_host(namespace, host), by=bounded) as running,
    ):
        running.wait_ready()
        why = "changes at the other ends of cables cannot be watched: Operation not permitted"
        wait_until(lambda: said_of_segments(running) == [why] * 4)
        other = namespaces.call(namespace, lambda: open_port("b2", PortKind.PACKET_V2))
        assert other.send([bytes.fromhex("0201000500020200000000028899") + bytes(50)]) == 1
        other.close()
        wait_until(lambda: json.loads(running.stats.read_text())["ports"]["2"]["rx_frames"] > 0, "port 2 is deaf")


def add_host(namespace: str, host: str) -> None:
    for device in ("up", "off"):
        connect(
            CableEnd(namespace, device, 0x02_00_00_00_00_01, 1_500), CableEnd(host, device, 0x02_00_00_00_00_02, 1_500)
        )
        bring_up(namespace, [device])
        bring_up(host, [device])


def said_of_segments(switch: Running) -> list[str | None]:
    """Return the ports' reasons, in the order of their numbers."""
    return [state["not_joined"] for _, state in sorted(json.loads(switch.stats.read_text())["port_states"].items())]


@pytest.mark.root
def test_switch_logs_ready_ignores_sighup_and_ends_on_sigterm(switch: Running) -> None:
    switch.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP has no effect" in switch.log.read_text(), "it says nothing of SIGHUP")
    switch.process.send_signal(signal.SIGTERM)
    assert switch.process.wait(HANG_S) == 0
    line, _ = switch.log.read_text().splitlines()
    assert "switch 5 ready: P4Runtime on unix:" in line
    assert "ports 1@a1 2@a2" in line
    assert not switch.ready.exists()
    assert not switch.socket.exists()
    stats = json.loads(switch.stats.read_text())
    assert stats["device_id"] == 5
    assert set(stats["ports"]) == {"1", "2", "255"}
    assert stats["devices"]["1"]["device"] == "a1"


@pytest.mark.root
def test_it_answers_p4runtime(undisturbed: Running) -> None:
    with grpc.insecure_channel(f"unix:{undisturbed.socket}") as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        answer = stub.Capabilities(p4r.CapabilitiesRequest(), timeout=HANG_S)
    assert answer.p4runtime_api_version.startswith("1.")


@pytest.mark.root
def test_an_idle_switch_does_not_spin(undisturbed: Running) -> None:
    def ticks() -> int:
        fields = Path(f"/proc/{undisturbed.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    first = json.loads(undisturbed.stats.read_text())["time_ns"]
    before = ticks()
    wait_until(lambda: json.loads(undisturbed.stats.read_text())["time_ns"] > first + 10**9, "no statistics")
    # A busy loop would have used a hundred ticks a second.
    assert ticks() - before < 30


@pytest.mark.root
def test_it_ends_when_what_started_it_is_gone(switch: Running) -> None:
    os.close(switch.lifeline)
    assert switch.process.wait(HANG_S) == 0
    switch.lifeline = os.open(os.devnull, os.O_RDONLY)
    assert "stopping" in switch.log.read_text()


@pytest.mark.root
def test_a_lost_port_is_told_once_and_the_other_goes_on(switch: Running, namespace: str) -> None:
    def drop_first() -> None:
        with IPRoute() as netlink:
            netlink.link("del", index=netlink.link_lookup(ifname="a1")[0])

    namespaces.call(namespace, drop_first)
    wait_until(lambda: "port 1 (a1) is down" in switch.log.read_text(), "the loss is not told")
    other = namespaces.call(namespace, lambda: open_port("b2", PortKind.PACKET_V2))
    frame = bytes.fromhex("0201000500020200000000028899") + bytes(50)
    assert other.send([frame] * 3) == 3
    other.close()
    wait_until(lambda: json.loads(switch.stats.read_text())["ports"]["2"]["rx_frames"] >= 3, "port 2 does not receive")
    assert switch.log.read_text().count("is down") == 1
    assert switch.process.poll() is None


@pytest.mark.root
def test_a_port_that_comes_back_forwards_again(switch: Running, namespace: str) -> None:
    def set_first(state: str) -> None:
        with IPRoute() as netlink:
            netlink.link("set", index=netlink.link_lookup(ifname="a1")[0], state=state)

    def received() -> int:
        return int(json.loads(switch.stats.read_text())["ports"]["1"]["rx_frames"])

    namespaces.call(namespace, lambda: set_first("down"))
    wait_until(lambda: "port 1 (a1) is down" in switch.log.read_text(), "the loss is not told")
    namespaces.call(namespace, lambda: set_first("up"))
    other = namespaces.call(namespace, lambda: open_port("b1", PortKind.PACKET_V2))
    frame = bytes.fromhex("0201000500020200000000028899") + bytes(50)

    def comes_through() -> bool:
        other.send([frame])
        return received() > 0 and "port 1 (a1) is up again" in switch.log.read_text()

    wait_until(comes_through, "the port does not come back")
    other.close()


def test_what_cannot_start_says_why_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd_p4info = tmp_path / "odd.p4info.txtpb"
    odd_p4info.write_text((BUILD / "fabric.p4info.txtpb").read_text().replace("bitwidth: 7\n", ""))
    PcapWriter(tmp_path / "in.pcap").close()
    files = ["-i", f"1@{tmp_path / 'in.pcap'},{tmp_path / 'out.pcap'}"]
    grpc_server = ["--", "--grpc-server-addr", f"unix:{tmp_path / 'p4.sock'}"]
    for arguments, problem in (
        (["--no-p4", "-i", "3@nowhere"], "interface nowhere: no such device"),
        (["missing.json", "--p4info", "missing.txtpb"], "missing.json: No such file"),
        (["--no-p4", "--port-rate", "9:5"], "command line: --port-rate: port 9 has no interface"),
        (["--no-p4", "--lifeline-fd", "99"], "--lifeline-fd 99 is not a pipe that can be watched: Bad file descriptor"),
        (["--no-p4", "--stats-file", "/no/folder"], "/no/folder: No such file or directory"),
        (["--no-p4", "--ready-file", "/no/folder"], "/no/folder: No such file or directory"),
        (
            [str(BUILD / "fabric.json"), "--pipeline", "interpreter", "--p4info", str(odd_p4info)],
            "odd.p4info.txtpb: packet_in: field ",
        ),
    ):
        assert main([*arguments, *files, *grpc_server]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("millrace switch: ")
        assert problem in line


@pytest.mark.root
def test_process_that_cannot_start_ends_with_status_1(namespace: str, tmp_path: Path) -> None:
    with Running(namespace, tmp_path, "--no-p4", "-i", "3@nowhere") as running:
        assert running.process.wait(HANG_S) == 1
    (line,) = running.log.read_text().splitlines()
    assert line.startswith("millrace switch: interface nowhere: no such device")


PIPELINE_CHOICES = ("compiled", "interpreter")


class RunningOnFiles:
    """A switch process without devices, whose ports are files or sockets."""

    def __init__(self, folder: Path, *arguments: str, program: Path = PROGRAMS / "copies.json") -> None:
        self.ready, self.stats, self.socket = folder / "ready", folder / "stats.json", folder / "p4.sock"
        argv = [sys.executable, "-m", "dataplane.switch.process", str(program), *arguments]
        argv += ["--ready-file", str(self.ready), "--stats-file", str(self.stats)]
        argv += ["--", "--grpc-server-addr", f"unix:{self.socket}"]
        self.process = subprocess.Popen(argv, cwd=folder, env=dict(os.environ) | {"PYTHONPATH": str(ROOT)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(HANG_S)

    def sent(self, port: int) -> int:
        return int(json.loads(self.stats.read_text())["ports"][str(port)]["tx_frames"])

    def wait_ready(self) -> None:
        wait_until(lambda: self.ready.exists() or self.process.poll() is not None, "never ready")
        assert self.process.poll() is None

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(HANG_S) == 0


@pytest.mark.parametrize("pipeline", PIPELINE_CHOICES)
def test_ports_may_be_capture_files(tmp_path: Path, pipeline: str) -> None:
    frames = [bytes(14) + bytes([number]) * 50 for number in range(100)]
    for name, content in (("a_in.pcap", frames), ("b_in.pcap", [])):
        with PcapWriter(tmp_path / name) as writer:
            for frame in content:
                writer.write(frame, 1)
    with RunningOnFiles(tmp_path, "-i", "1@a", "-i", "2@b", "--use-files", "0", "--pipeline", pipeline) as running:
        running.wait_ready()
        # copies.p4 sends what asks for nothing to port 2, with 12 bytes in front.
        wait_until(lambda: running.sent(2) == len(frames), "not all frames came through")
        running.stop()
    with PcapReader(tmp_path / "b_out.pcap") as reader:
        assert [capture.frame[12:] for capture in reader] == frames
    with PcapReader(tmp_path / "a_out.pcap") as reader:
        assert list(reader) == []


def test_client_connecting_during_compilation_gets_that_program(tmp_path: Path) -> None:
    with RunningOnFiles(tmp_path) as running:
        wait_until(running.socket.exists, "it never listens")
        with grpc.insecure_channel(f"unix:{running.socket}") as channel:
            ask = p4r_grpc.P4RuntimeStub(channel).GetForwardingPipelineConfig
            answer = ask(p4r.GetForwardingPipelineConfigRequest(), wait_for_ready=True, timeout=HANG_S)
        assert answer.config.p4info.pkg_info.arch == "v1model"
        running.wait_ready()
        running.stop()


def test_a_program_may_start_without_its_p4info(tmp_path: Path) -> None:
    alone = tmp_path / "copies.json"
    alone.write_bytes((PROGRAMS / "copies.json").read_bytes())
    with PcapWriter(tmp_path / "in.pcap") as writer:
        writer.write(bytes(64), 1)
    PcapWriter(tmp_path / "none.pcap").close()
    arguments = ["-i", "1@in.pcap,out.pcap", "-i", "2@none.pcap,two.pcap", "--pipeline", "interpreter"]
    with RunningOnFiles(tmp_path, *arguments, program=alone) as running:
        running.wait_ready()
        wait_until(lambda: running.sent(2) == 1, "the frame did not come through")
        with grpc.insecure_channel(f"unix:{running.socket}") as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            request = p4r.GetForwardingPipelineConfigRequest()
            assert not stub.GetForwardingPipelineConfig(request, timeout=HANG_S).HasField("config")
            with pytest.raises(grpc.RpcError) as caught:
                list(stub.Read(p4r.ReadRequest(entities=[p4r.Entity()]), timeout=HANG_S))
            assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        running.stop()


@pytest.mark.parametrize("pipeline", PIPELINE_CHOICES)
def test_a_port_may_be_a_unix_socket(tmp_path: Path, pipeline: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(tmp_path / "two"))
        listening.listen()
        PcapWriter(tmp_path / "empty.pcap").close()
        arguments = ["-i", f"2@unix:{tmp_path / 'two'}", "-i", "1@empty.pcap,out.pcap", "--pipeline", pipeline]
        with RunningOnFiles(tmp_path, *arguments) as running:
            running.wait_ready()
            far, _ = listening.accept()
            with far:
                far.settimeout(HANG_S)
                for number in range(20):
                    frame = bytes(14) + bytes([number]) * 50
                    far.send(frame)
                    assert far.recv(2000)[12:] == frame
            running.stop()


def test_a_damaged_or_missing_capture_file_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "odd.pcap").write_bytes(b"nothing of the kind")
    for name, problem in (("odd.pcap", "odd.pcap: "), ("none.pcap", "none.pcap: No such file")):
        argv = ["--no-p4", "-i", f"1@{tmp_path / name},{tmp_path / 'out.pcap'}"]
        shown = subprocess.run(
            [sys.executable, "-m", "dataplane.switch.process", *argv],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=HANG_S,
            check=False,
        )
        assert shown.returncode == 1
        (line,) = shown.stderr.splitlines()
        assert problem in line


def test_main_returns_a_status_instead_of_raising(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-p4", "-i", "1@no-such-device"]) == 1
    assert "interface no-such-device" in capsys.readouterr().err
    assert main([]) == 1


def test_help_names_the_options() -> None:
    argv = [sys.executable, "-m", "dataplane.switch.process", "--help"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, timeout=HANG_S).stdout
    assert "--port-rate" in shown
    assert "--grpc-server-addr" in shown


def test_a_waiter_wakes_for_instants_descriptors_and_calls() -> None:
    read_end, write_end = os.pipe()
    with Waiter() as waiter:
        waiter.watch(read_end)
        now = time.monotonic_ns()
        assert waiter.wait(now - 1, now) == []
        assert waiter.wait(now + 3_000_000, now) == []
        assert time.monotonic_ns() >= now + 3_000_000
        waiter.wake()
        assert waiter.wait(None, now) == []
        os.write(write_end, b"x")
        assert waiter.wait(None, now) == [read_end]
        waiter.forget(read_end)
        assert waiter.wait(now, now) == []
    os.close(read_end)
    os.close(write_end)


def test_a_signal_just_before_the_wait_ends_it() -> None:
    called: list[None] = []
    with Waiter() as waiter, waiter.calling({signal.SIGUSR1: lambda: called.append(None)}):
        signal.raise_signal(signal.SIGUSR1)
        now_ns = time.monotonic_ns()
        latest_ns = now_ns + int(HANG_S * NS_PER_S)
        assert waiter.wait(latest_ns, now_ns) == []
        assert time.monotonic_ns() < latest_ns
        assert called == [None]
