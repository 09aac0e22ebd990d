"""A producer and clients in namespaces around the built-in switch, and the daemon: named content over real sockets."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller.network.content.reconciler import StoreReconciler
from controller.network.content.settings import StoreSettings
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.process import serve
from dataplane.clock import MonotonicClock
from dataplane.fabric.kernel import KernelFabric
from dataplane.store.client import StoreClient
from dataplane.store.dialogues import Content
from dataplane.store.producer import Producer
from tests.integration.test_virtual_store import PARAMETERS, RESULT, rack
from tests.waiting import wait_until

pytestmark = pytest.mark.root

LIMIT_S = 60.0
MS = 1_000_000
INTERVAL_NS = 100 * MS


@pytest.fixture(scope="module")
def fabric() -> Iterator[KernelFabric]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with KernelFabric(rack()) as running:
        running.wait_ready(LIMIT_S)
        yield running


@pytest.fixture(scope="module")
def controller(fabric: KernelFabric) -> Iterator[StoreReconciler]:
    """Return the part of a running daemon that looks after the store."""
    settings = DaemonSettings(
        topology="unused",
        switches={"s1": fabric.p4runtime_address("s1")},
        store=StoreSettings(producers=("h4",), recorded=(PARAMETERS, RESULT), interval_ns=INTERVAL_NS),
        retry=RetrySettings(first_wait_ns=10 * MS, longest_wait_ns=100 * MS),
    )
    reconcilers, stops = list[StoreReconciler](), list[Callable[[], object]]()

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        await serve(settings, fabric.topology, MonotonicClock(), stop, on_store=reconcilers.append)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    until(lambda: bool(reconcilers) and reconcilers[0].problem("s1") == "")
    yield reconcilers[0]
    stops[0]()
    thread.join(LIMIT_S)


def served(path: str) -> Producer:
    return Producer(path, address="0.0.0.0", anyone=True, freshness_ms=60_000)  # in its own namespace


@pytest.fixture
def producer(fabric: KernelFabric, tmp_path: Path) -> Iterator[Producer]:
    with fabric.call_in("h4", lambda: served(str(tmp_path / "store.db"))) as running:
        yield running


def client(fabric: KernelFabric, host: str) -> StoreClient:
    server = str(fabric.topology.host["h4"].ipv4)
    return fabric.call_in(host, lambda: StoreClient(server, deadline_s=LIMIT_S))


def until(condition: Callable[[], bool]) -> None:
    wait_until(condition, limit_s=LIMIT_S)


def is_copied(producer: Producer, client: StoreClient, name: str, content: Content) -> bool:
    """Read; return whether the producer was not asked."""
    before = producer.counters.get("answered", 0)
    assert client.get(name) == content
    return producer.counters.get("answered", 0) == before


def test_copies_are_read_written_through_and_restored(
    fabric: KernelFabric, controller: StoreReconciler, producer: Producer
) -> None:
    value = random.Random(1).randbytes(5000)
    with client(fabric, "h1") as reader, client(fabric, "h2") as writer:
        assert writer.put("/weights", value) == 1
        until(lambda: is_copied(producer, reader, "/weights", Content(value, 1)))
        assert writer.put("/weights", b"short") == 2
        assert is_copied(producer, reader, "/weights", Content(b"short", 2))  # the acknowledgement renewed the copy
        producer.publish("/weights", b"from its producer")
        until(lambda: reader.get("/weights").version == 3)

        fabric.stop_switch("s1", kill=True)
        fabric.start_switch("s1")
        assert reader.get("/weights") == Content(b"from its producer", 3)
        until(lambda: is_copied(producer, reader, "/weights", Content(b"from its producer", 3)))
        assert controller.problem("s1") == ""


def test_parameters_are_in_the_switch_whoever_serves(fabric: KernelFabric, controller: StoreReconciler) -> None:
    until(lambda: controller.problem("s1") == "")
    with client(fabric, "h2") as worker, client(fabric, "h3") as reader:
        worker.record(RESULT.name, b"of round 7", version=7)
        assert reader.get(RESULT.name) == Content(b"of round 7", 7)
