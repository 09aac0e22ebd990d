"""Ports of kind DPDK, with the real DPDK: both drivers on veth pairs, and those that need no device and no root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from dataplane.errors import PortError
from dataplane.native import kernel_library
from dataplane.nic import NicPort, PortKind, RingSettings, open_port
from dataplane.nic.capture.pcap import PcapReader, PcapWriter
from dataplane.nic.devices.device import find_device
from dataplane.nic.dpdk.plan import XDP_MBUFS
from dataplane.nic.dpdk.shim import load_shim
from dataplane.nic.dpdk.stale_xdp import KEPT_NOTES, ProgramNote, read_program
from dataplane.nic.ports.kernels import is_readable
from dataplane.nic.ports.kernels.waiting import wait
from dataplane.nic.settings import DpdkSettings
from tests.dataplane.nic.conftest import PATIENCE_S, Cable, needs_dpdk, receive
from tests.waiting import wait_until

MACS = bytes.fromhex("020000000002 020000000001")
FRAME = MACS + b"\x88\xb5" + bytes(range(46))
PACKET, XDP, RING = DpdkSettings("net_af_packet"), DpdkSettings("net_af_xdp"), DpdkSettings("net_ring")
ROOT_FOLDER = Path(__file__).parents[4]


pytestmark = needs_dpdk
both_drivers = pytest.mark.parametrize("driver", [PACKET, XDP], ids=lambda driver: driver.device)


def make_frame(length: int, seed: int = 0) -> bytes:
    return MACS + b"\x88\xb5" + random.Random(length << 8 | seed).randbytes(length - 14)


def make_datagram(flow: int) -> bytes:
    """Return a UDP frame of one of many flows."""
    ip = bytes.fromhex("45000020 00000000 4011 0000 0a000001 0a000002")
    return MACS + b"\x08\x00" + ip + (1024 + flow).to_bytes(2, "big") + bytes.fromhex("1000 000c 0000") + bytes(18)


def open_dpdk(cable: Cable, driver: DpdkSettings, queues: int = 1, device: str = "here") -> NicPort:
    return cable.open(device, PortKind.DPDK, queues, RingSettings(dpdk=driver))


@pytest.fixture
def narrow_cable(make_cable: Callable[..., Cable]) -> Cable:
    """A cable whose frames fit one chunk of AF_XDP."""
    return make_cable(mtu=1500)


@pytest.mark.root
@both_drivers
def test_frames_of_every_size_cross_to_the_byte_both_ways(narrow_cable: Cable, driver: DpdkSettings) -> None:
    with open_dpdk(narrow_cable, driver) as here, narrow_cable.open("there") as there:
        frames = [make_frame(length) for length in range(60, 1515, 7)] + [make_frame(1514)]
        for first in range(0, len(frames), 64):
            burst = frames[first : first + 64]
            assert here.send(burst) == len(burst)
            assert receive(there, len(burst)) == burst
            assert there.send(burst) == len(burst)
            assert receive(here, len(burst)) == burst
        counted = here.read_counters()
        nbytes = sum(map(len, frames))
        assert (counted.rx_frames, counted.rx_bytes) == (len(frames), nbytes)
        assert (counted.tx_frames, counted.tx_bytes) == (len(frames), nbytes)
        assert counted.drops == {}


@pytest.mark.root
@both_drivers
def test_every_mbuf_comes_back_and_is_used_again(narrow_cable: Cable, driver: DpdkSettings) -> None:
    """Twice as many frames as mbufs, both ways, in bursts of half the lending limit."""
    bursts = 2 * XDP_MBUFS // 512 + 1
    with open_dpdk(narrow_cable, driver) as here, narrow_cable.open("there") as there:
        for seed in range(bursts):
            burst = [make_frame(128, seed)] * 512
            assert here.send(burst) == there.send(burst) == 512
            assert receive(there, 512) == receive(here, 512) == burst
        assert here.read_counters().drops == {}


@pytest.mark.root
@both_drivers
def test_a_port_can_be_opened_again_and_leaves_nothing(narrow_cable: Cable, driver: DpdkSettings) -> None:
    with narrow_cable.open("there") as there:
        for _ in range(3):
            before = count_sockets()
            with open_dpdk(narrow_cable, driver) as here:
                there.send([FRAME])
                assert receive(here, 1) == [FRAME]
            assert narrow_cable.call(lambda: read_program(find_device("here"))) is None
            assert count_sockets() == before


def count_sockets() -> int:
    """Return how many sockets this process has; not all descriptors: libxdp leaks a map and a program each time."""
    names = [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(str(name.readlink()).startswith("socket:") for name in names)


@pytest.mark.root
def test_queues_share_the_flows_and_each_wakes_its_own_reader(make_cable: Callable[..., Cable]) -> None:
    cable = make_cable(mtu=1500, queues=2)
    kernels = kernel_library(is_readable)
    with open_dpdk(cable, PACKET, queues=2) as here, cable.open("there") as there:
        frames = [make_datagram(flow) for flow in range(32)]
        there.send(frames)
        wait_until(lambda: all(map(kernels.bind(is_readable), here.queues)))
        # A queue keeps frames that it has already found, so more must arrive before its socket wakes again.
        there.send(frames)
        woken, _, _ = select.select([queue.fd for queue in here.queues], [], [], PATIENCE_S)
        assert len(woken) >= 1
        assert sorted(receive(here, 64)) == sorted(frames * 2)
        assert all(0 < queue.rx_frames < 64 for queue in here.queues)
        assert here.send(frames) == 32
        assert sorted(receive(there, 32)) == sorted(frames)


@pytest.mark.root
def test_frames_that_found_no_room_are_counted(narrow_cable: Cable) -> None:
    settings = RingSettings(rx_frames=64, dpdk=PACKET)
    with narrow_cable.open("here", PortKind.DPDK, 1, settings) as here, narrow_cable.open("there") as there:
        assert there.send([FRAME] * 200) == 200
        assert receive(here, 64) == [FRAME] * 64
        assert here.read_counters().drops == {"socket_full": 136}


@pytest.mark.root
@both_drivers
def test_what_a_killed_process_leaves_does_not_stop_the_next_one(narrow_cable: Cable, driver: DpdkSettings) -> None:
    with start_holder(narrow_cable, driver) as child:
        child.send_signal(signal.SIGKILL)
    with narrow_cable.open("there") as there, open_dpdk(narrow_cable, driver) as here:
        there.send([FRAME])
        assert receive(here, 1) == [FRAME]
    assert not is_promiscuous(narrow_cable)


@pytest.mark.root
def test_notes_of_the_dead_do_not_pile_up(narrow_cable: Cable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "af_xdp"
    folder.mkdir()
    for number in range(80):
        (folder / f"1-{number}").touch()
    device = narrow_cable.call(lambda: find_device("here"))
    note = narrow_cable.call(lambda: ProgramNote(device))
    assert len(list(folder.iterdir())) == KEPT_NOTES
    note.close()
    assert len(list(folder.iterdir())) == KEPT_NOTES - 1


@pytest.mark.root
def test_a_program_of_a_living_process_is_left_alone(narrow_cable: Cable) -> None:
    with start_holder(narrow_cable, XDP) as child:
        program = narrow_cable.call(lambda: read_program(find_device("here")))
        with pytest.raises(
            PortError, match=r"^interface here: another process receives from it through DPDK's net_af_xdp$"
        ):
            open_dpdk(narrow_cable, XDP)
        assert narrow_cable.call(lambda: read_program(find_device("here"))) == program
        child.kill()


@pytest.mark.root
def test_a_program_of_others_is_left_alone(narrow_cable: Cable) -> None:
    with narrow_cable.open("here", PortKind.XDP):
        program = narrow_cable.call(lambda: read_program(find_device("here")))
        assert program is not None
        with pytest.raises(PortError, match=r"^interface here: another XDP program is on it"):
            open_dpdk(narrow_cable, XDP)
        assert narrow_cable.call(lambda: read_program(find_device("here"))) == program


def start_holder(cable: Cable, driver: DpdkSettings) -> subprocess.Popen[bytes]:
    """Start a process that has the port open, and return once it has."""
    text = (
        "import sys\n"
        "from tests.dataplane.nic.conftest import Cable\n"
        "from tests.dataplane.nic.dpdk.test_dpdk import open_dpdk, DpdkSettings\n"
        f"port = open_dpdk(Cable({cable.namespace!r}), DpdkSettings({driver.device!r}))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT_FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    return child


def is_promiscuous(cable: Cable) -> bool:
    def look() -> bool:
        with IPRoute() as netlink:
            return bool(next(iter(netlink.link("get", ifname="here"))).get_attr("IFLA_PROMISCUITY"))

    return cable.call(look)


@pytest.mark.root
def test_what_cannot_be_opened_says_so(narrow_cable: Cable) -> None:
    with pytest.raises(PortError, match=r"^interface nowhere: no such device in this network namespace$"):
        open_dpdk(narrow_cable, PACKET, device="nowhere")
    with pytest.raises(PortError, match=r"^interface here: .*queue count 2 is larger"):
        open_dpdk(narrow_cable, XDP, queues=2)
    with pytest.raises(PortError, match=r"^interface here: net_af_packet.*cannot attach"):
        open_dpdk(narrow_cable, DpdkSettings("net_af_packet,nonsense=1"))
    with pytest.raises(PortError, match=r"^interface here: DPDK does not report hardware time stamps"):
        narrow_cable.open("here", PortKind.DPDK, 1, RingSettings(stamps="hardware"))
    with pytest.raises(PortError, match=r"^DPDK was started without PCI devices"):
        open_port("0000:00:1f.7", PortKind.DPDK)


# Without a device, and without root.


@pytest.fixture
def ring() -> Iterator[NicPort]:
    """A port whose frames come back to it."""
    with open_port("ring", PortKind.DPDK, settings=RingSettings(dpdk=RING)) as port:
        yield port


def test_a_driver_that_wakes_nobody_is_looked_at_at_intervals(ring: NicPort) -> None:
    waiting = kernel_library(wait).bind(wait)
    queues = (ctypes.c_uint64 * 1)(ring.queues[0].address)
    started = time.monotonic()
    assert waiting(queues, 1, -1, -1) == 0
    assert time.monotonic() - started < PATIENCE_S
    frames = [make_frame(length) for length in range(60, 1515, 7)]
    assert ring.send(frames) == len(frames)
    assert waiting(queues, 1, -1, -1) == 1
    assert receive(ring, len(frames)) == frames
    assert not kernel_library(is_readable).bind(is_readable)(ring.queues[0])


def test_the_timer_of_python_rests_between_two_looks(ring: NicPort) -> None:
    assert select.select([ring], [], [], PATIENCE_S)[0]
    assert ring.receive(1) == []
    assert not select.select([ring], [], [], 0)[0]
    assert select.select([ring], [], [], PATIENCE_S)[0]


def test_frames_that_were_found_but_not_taken_are_given_back(ring: NicPort) -> None:
    ring.send([FRAME] * 40)
    assert kernel_library(is_readable).bind(is_readable)(ring.queues[0])
    assert ring.receive(8) == [FRAME] * 8
    ring.close()
    assert (ring.send([FRAME]), ring.receive(1), ring.is_down, ring.fileno()) == (0, [], True, -1)


def test_chained_mbufs_are_gathered(tmp_path: Path) -> None:
    frames = [make_frame(length) for length in (60, 1500, 2048, 2049, 4096, 9000, 200)]
    path, sent = tmp_path / "in.pcap", tmp_path / "out.pcap"
    with PcapWriter(path) as writer:
        for frame in frames:
            writer.write(frame, 0)
    driver = DpdkSettings(f"net_pcap,rx_pcap={path},tx_pcap={sent}")
    with open_port("capture", PortKind.DPDK, settings=RingSettings(dpdk=driver)) as port:
        got: list[bytes] = []
        while select.select([port], [], [], PATIENCE_S)[0] and len(got) < len(frames):
            got += port.receive(64)
        assert got == frames
        assert port.read_counters().rx_bytes == sum(map(len, frames))
        port.send([FRAME, make_frame(1514)])
    with PcapReader(sent) as reader:
        assert [each.frame for each in reader] == [FRAME, make_frame(1514)]


def test_more_queues_than_the_device_has_are_refused(tmp_path: Path) -> None:
    driver = DpdkSettings(f"net_pcap,rx_pcap={tmp_path}/none.pcap,tx_pcap={tmp_path}/out.pcap")
    with PcapWriter(tmp_path / "none.pcap") as writer:
        writer.write(FRAME, 0)
    with pytest.raises(PortError, match=r"^interface capture: net_pcap\d+ has 1 queues, not 3$"):
        open_port("capture", PortKind.DPDK, 3, RingSettings(dpdk=driver))


def test_frames_that_fit_no_mbuf_are_refused() -> None:
    settings = RingSettings(frame_bytes=1 << 17, dpdk=RING)
    with pytest.raises(PortError, match=r"^interface ring: frames of 131072 bytes do not fit a DPDK mbuf"):
        open_port("ring", PortKind.DPDK, settings=settings)


def test_memory_runs_out_with_an_error_and_comes_back() -> None:
    settings = RingSettings(frame_bytes=32_000, dpdk=RING)
    for _ in range(2):
        with contextlib.ExitStack() as opened:
            opened.enter_context(open_port("first", PortKind.DPDK, settings=settings))
            with pytest.raises(PortError, match=r"^interface next: net_ring\d+: .*[Cc]annot allocate memory"):
                open_many(opened, settings)


def open_many(opened: contextlib.ExitStack, settings: RingSettings) -> None:
    for _ in range(8):
        opened.enter_context(open_port("next", PortKind.DPDK, settings=settings))


def test_dpdk_leaves_processors_and_threads_alone(ring: NicPort) -> None:
    del ring
    assert os.sched_getaffinity(0) == set(range(os.cpu_count() or 1)) & os.sched_getaffinity(os.getppid())
    names = [Path(f"/proc/self/task/{task.name}/comm").read_text() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in names if name.startswith(("rte_mp", "telemetry", "rte-worker", "lcore"))]
    assert not Path(f"/var/run/dpdk/millrace-{os.getpid()}").exists()


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = r"^ports of kind DPDK need DPDK and a C compiler: apt install libdpdk-dev gcc pkg-config$"
    with monkeypatch.context() as changed:
        changed.setenv("PATH", str(tmp_path))
        with pytest.raises(PortError, match=missing):
            load_shim.__wrapped__()
    monkeypatch.setenv("PKG_CONFIG_LIBDIR", str(tmp_path))
    with pytest.raises(PortError, match=missing):
        load_shim.__wrapped__()


def test_the_shim_is_built_once_and_not_taken_from_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path))
    load_shim.__wrapped__()
    (built,) = tmp_path.glob("dpdk-*.so")
    first = built.stat().st_ino
    load_shim.__wrapped__()
    assert built.stat().st_ino == first
    built.chmod(0o722)
    load_shim.__wrapped__()
    assert built.stat().st_ino != first
    assert built.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [built]


def test_code_that_does_not_compile_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] || { echo 'shim.c: no such header' >&2; exit 1; }\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("MILLRACE_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(PortError, match=r"^the C code for DPDK does not compile: shim.c: no such header$"):
        load_shim.__wrapped__()
    assert list((tmp_path / "cache").iterdir()) == []
