"""Kernels that write files and pull over networks: no leftovers, and no service to others."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.transfers import disk, network, pull
from dataplane.fabric.kernel import namespaces
from tests.network_namespace import network_namespace
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_files_go_after_each_run_and_the_folder_after_the_last(tmp_path: Path) -> None:
    prepared = disk.SmallFiles({"files": 7, "file_bytes": 100}, 1)
    (folder,) = tmp_path.iterdir()
    prepared.run(())
    assert list(folder.iterdir()) == []
    prepared.close()
    assert list(tmp_path.iterdir()) == []


def test_reads_report_the_share_served_from_the_cache() -> None:
    for prepared in (disk.SmallFiles({"files": 3, "file_bytes": 9000}, 1), disk.BulkIo({"nbytes": 2_500_000}, 1)):
        with closing(prepared):
            prepared.run(())
            figures = prepared.figures()
        assert 0 <= figures["read_from_cache"] <= 1
        assert figures["write_s"] > 0
        assert figures["read_s"] > 0


def test_a_file_that_reads_otherwise_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(disk.SmallFiles({"files": 4, "file_bytes": 100}, 1)) as prepared:
        real = Path.read_bytes
        monkeypatch.setattr(
            Path, "read_bytes", lambda path: b"x" + real(path)[1:] if path.name == "000002" else real(path)
        )
        assert prepared.accuracy(prepared.run(())) == 0.25


def test_sizes_beyond_the_free_space_are_refused_before_writing(tmp_path: Path) -> None:
    with pytest.raises(ProbeKernelError, match=r"bulk-io: \d+ bytes are too many: \d+ free in"):
        disk.BulkIo({"nbytes": 1 << 50}, 1)
    with pytest.raises(ProbeKernelError, match="small-files: 1000000 files are too many, at most 100000 allowed"):
        disk.SmallFiles({"files": 1_000_000, "file_bytes": 1}, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def server() -> Iterator[tuple[tuple[str, int], bytes, pull.Counters]]:
    """Serve on loopback; yield address, secret and counters."""
    listening, secret = socket.create_server(("127.0.0.1", 0)), secrets.token_bytes(32)
    stop, counters = threading.Event(), pull.Counters()
    limits = pull.Limits(connections=2, most_bytes=1 << 20, handshake_s=0.3, silence_s=5.0, for_s=30.0)
    address = listening.getsockname()
    thread = threading.Thread(target=pull.serve, args=(listening, secret, limits, stop, counters))
    thread.start()
    yield address, secret, counters
    stop.set()
    thread.join()


def test_client_without_the_secret_gets_only_a_nonce(
    server: tuple[tuple[str, int], bytes, pull.Counters],
) -> None:
    address, secret, counters = server
    overheard = b""
    for key in (b"x" * 32, secret):
        with socket.create_connection(address, 5) as connection:
            nonce = connection.recv(16)
            answer = pull.answer(key, nonce, 1000, 1, 0)
            connection.sendall(answer)
            received = connection.recv(1000, socket.MSG_WAITALL)
            assert len(received) == (1000 if key is secret else 0)
            overheard = answer
    with socket.create_connection(address, 5) as connection:
        connection.recv(16)
        connection.sendall(overheard)
        assert connection.recv(1) == b""
    with socket.create_connection(address, 5) as connection:
        connection.sendall(pull.answer(secret, connection.recv(16), 1 << 40, 1, 0))
        assert connection.recv(1) == b""
    wait_until(lambda: (counters.refused, counters.sent_bytes) == (3, 1000), "three are refused, one is counted")
    assert counters.served == 1


def test_silent_and_excess_connections_are_dropped(
    server: tuple[tuple[str, int], bytes, pull.Counters],
) -> None:
    address, _, counters = server
    silent = [socket.create_connection(address, 5) for _ in range(5)]
    wait_until(lambda: counters.too_many == 3 and counters.broken == 2, "all are left")
    for connection in silent:
        connection.close()


def test_a_server_elsewhere_is_asked_with_the_secret_of_a_file(
    server: tuple[tuple[str, int], bytes, pull.Counters], tmp_path: Path
) -> None:
    (host, port), secret, _ = server
    file = tmp_path / "secret"
    file.write_text(secret.hex(), encoding="ascii")
    environment = {"MILLRACE_PULL_FROM": f"{host}:{port}", "MILLRACE_PULL_SECRET_FILE": str(file)}
    with closing(network.NetworkPull({"nbytes": 100_001, "streams": 2}, 1, environment)) as prepared:
        output = prepared.run(())
        assert prepared.accuracy(output) == 0
        assert prepared.figures()["loopback"] == 0
    file.write_text("00" * 32, encoding="ascii")
    refused = pytest.raises(ProbeKernelError, match=f"network-pull: {host}:{port}: the connection ended early")
    with closing(network.NetworkPull({"nbytes": 1, "streams": 1}, 1, environment)) as prepared, refused:
        prepared.run(())


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"MILLRACE_PULL_FROM": "h"}, "'h' is not HOST:PORT"),
        ({"MILLRACE_PULL_FROM": "h:1"}, "MILLRACE_PULL_FROM without MILLRACE_PULL_SECRET_FILE"),
        ({"MILLRACE_PULL_FROM": "h:1", "MILLRACE_PULL_SECRET_FILE": "none"}, "secret file none: No such file"),
        ({"MILLRACE_PULL_NAMESPACE": "n"}, "MILLRACE_PULL_NAMESPACE without MILLRACE_PULL_ADDRESS"),
        (
            {"MILLRACE_PULL_NAMESPACE": "none-such", "MILLRACE_PULL_ADDRESS": "10.0.0.1"},
            "in none-such: network namespace none-such: No such",
        ),
        ({"MILLRACE_PULL_ADDRESS": "203.0.113.7"}, "no server at 203.0.113.7: Cannot assign requested address"),
    ],
)
def test_errors_in_the_environment_are_one_line(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(ProbeKernelError, match=problem):
        network.NetworkPull({"nbytes": 1, "streams": 1}, 1, environment)


def test_the_server_ends_with_its_client() -> None:
    prepared = network.NetworkPull({"nbytes": 1000, "streams": 1}, 1, {})
    prepared.run(())
    assert prepared.server is not None
    prepared.close()
    assert prepared.server.returncode == 0


@pytest.mark.root
def test_bytes_are_pulled_between_two_hosts_namespaces() -> None:
    with network_namespace() as here, network_namespace() as there:
        _join(here, there)
        environment = {"MILLRACE_PULL_NAMESPACE": there, "MILLRACE_PULL_ADDRESS": "10.9.0.2"}
        with closing(network.NetworkPull({"nbytes": 2_000_000, "streams": 2}, 1, environment)) as prepared:
            output = namespaces.call(here, lambda: prepared.run(()))
            assert prepared.accuracy(output) == 0
            assert prepared.figures()["loopback"] == 0
        received = namespaces.call(
            here, lambda: int(Path("/proc/thread-self/net/dev").read_text().partition("a:")[2].split()[0])
        )
        assert received > 2_000_000


def _join(here: str, there: str) -> None:
    """Connect two namespaces by a veth pair, 10.9.0.1 at one end and 10.9.0.2 at the other."""

    def lay() -> None:
        with namespaces.open_namespace(there) as far, IPRoute() as netlink:
            netlink.link("add", ifname="a", kind="veth", peer={"ifname": "b", "net_ns_fd": far.fileno()})

    def address(device: str, address: str) -> None:
        with IPRoute() as netlink:
            index = netlink.link_lookup(ifname=device)[0]
            netlink.addr("add", index=index, address=address, prefixlen=24)
            netlink.link("set", index=index, state="up")

    namespaces.call(here, lay)
    namespaces.call(here, lambda: address("a", "10.9.0.1"))
    namespaces.call(there, lambda: address("b", "10.9.0.2"))
