"""Metrics over HTTP: scraped like Prometheus does, by many clients, and by clients that never finish."""

from __future__ import annotations

import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from dataplane.metrics_server import MetricsLimits, MetricsServer
from tests.waiting import HANG_S

HOST = "127.0.0.1"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n"


def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("packets", "Packets.", registry=made).inc(7)
    return made


def scraped(server: MetricsServer) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{server.port}/metrics", timeout=HANG_S) as answer:
        return str(answer.read().decode())


def connected(server: MetricsServer) -> socket.socket:
    return socket.create_connection((HOST, server.port), timeout=HANG_S)


def received(connection: socket.socket) -> bytes:
    """Return all data until the other side closes or resets."""
    whole = b""
    while True:
        try:
            data = connection.recv(65536)
        except ConnectionResetError:
            return whole
        if not data:
            return whole
        whole += data


@pytest.fixture
def two() -> Iterator[MetricsServer]:
    with MetricsServer(registry(), HOST, 0, MetricsLimits(connections=2)) as server:
        yield server


def test_it_is_scraped() -> None:
    with MetricsServer(registry(), HOST, 0) as server:
        assert "packets_total 7.0" in scraped(server)
    with (
        MetricsServer(registry(), "::1", 0) as server,
        closing(socket.create_connection(("::1", server.port))) as connection,
    ):
        connection.sendall(REQUEST)
        assert b"packets_total 7.0" in received(connection)


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "somewhere.example"])
def test_what_is_open_to_others_is_said_to_be(address: str) -> None:
    with pytest.raises(OSError, match=f"it is not loopback; to let everyone read it, write plain:{address}"):
        MetricsServer(registry(), address, 0)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_port_is_a_number_of_16_bits(port: int) -> None:
    with pytest.raises(OSError, match="ports are numbers from 0 to 65535"):
        MetricsServer(registry(), HOST, port)


def test_it_is_open_to_others_where_that_is_said() -> None:
    with MetricsServer(registry(), "plain:0.0.0.0", 0) as server:
        assert "packets_total 7.0" in scraped(server)


def test_a_connection_too_many_is_told_so_and_the_others_go_on(two: MetricsServer) -> None:
    before = set(threading.enumerate())
    with ExitStack() as stack:
        open_ = [stack.enter_context(connected(two)) for _ in range(2)]
        for _ in range(50):
            with connected(two) as beyond:
                answer = received(beyond)
            assert answer.startswith(b"HTTP/1.0 503 Service Unavailable\r\n")
            assert answer.endswith(b"\r\n\r\n2 connections are open, the most at a time\n")
        assert len(set(threading.enumerate()) - before) <= 2
        for connection in open_:
            connection.sendall(REQUEST)
            assert b"packets_total 7.0" in received(connection)
    assert "packets_total 7.0" in scraped(two)


def ends_while_it_trickles(connection: socket.socket) -> bool:
    """Send an endless request byte by byte; return whether the other side closes."""
    connection.settimeout(0.05)
    for _ in range(600):
        try:
            connection.send(b"G")
            if not connection.recv(1):
                return True
        except TimeoutError:
            continue
        except ConnectionError:
            return True
    return False


def test_who_is_silent_and_who_trickles_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    by_silence, by_time = MetricsLimits(silent_s=0.2, whole_s=3600), MetricsLimits(silent_s=3600, whole_s=0.5)
    with MetricsServer(registry(), HOST, 0, by_silence) as server, connected(server) as silent:
        assert received(silent) == b""
    with MetricsServer(registry(), HOST, 0, by_time) as server, connected(server) as trickling:
        assert ends_while_it_trickles(trickling)
    assert caplog.text == ""


class Broken(Collector):
    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily("packets", "Packets.", value=int("no figure"))


def test_a_failure_is_a_line_not_a_trace(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    made = CollectorRegistry(auto_describe=False)
    made.register(Broken())
    with MetricsServer(made, HOST, 0) as server, connected(server) as connection:
        connection.sendall(REQUEST)
        assert received(connection).startswith(b"HTTP/1.0 500")
    assert "Traceback" not in capfd.readouterr().err
    assert [record.getMessage() for record in caplog.records] == [
        "a scrape failed: ValueError: invalid literal for int() with base 10: 'no figure'"
    ]
