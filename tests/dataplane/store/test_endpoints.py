"""Producer and client over real sockets, without a switch between them."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dataplane.store.client import StoreClient
from dataplane.store.dialogues import Content
from dataplane.store.errors import AbsentError, ForbiddenError, FullError, NoAnswerError, StaleError, StoreError
from dataplane.store.producer import Producer
from dataplane.store.sockets import open_socket, receive
from tests.waiting import wait_until

HOST = "127.0.0.1"
LONG = random.Random(1).randbytes(200_000)


@pytest.fixture
def producer(tmp_path: Path) -> Iterator[Producer]:
    with Producer(str(tmp_path / "store.db"), address=HOST, port=0, freshness_ms=50) as producer:
        yield producer


@pytest.fixture
def client(producer: Producer) -> Iterator[StoreClient]:
    with StoreClient(HOST, port=producer.address[1], deadline_s=20) as client:
        yield client


def test_values_of_any_length_are_written_and_read(producer: Producer, client: StoreClient) -> None:
    for value in (b"", b"short", LONG):
        version = client.put("/model/weights", value)
        assert client.get("/model/weights") == Content(value, version)
        assert producer.read("/model/weights") == value
    assert version == 3
    assert producer.publish("/model/weights", b"from here") == 4
    assert client.get("/model/weights") == Content(b"from here", 4)
    producer.settle("/model/weights")
    assert producer.counters["written"] == 3


def test_parameters_are_kept_in_the_writers_version(producer: Producer, client: StoreClient) -> None:
    client.record("/job/gradient", LONG, version=4)
    assert producer.read("/job/gradient") == LONG
    with pytest.raises(StaleError, match="/job/gradient: version 4 is stored, which is not older"):
        client.record("/job/gradient", b"", version=3)
    with pytest.raises(StoreError, match="versions are 1 to 4294967295, not 0"):
        client.record("/job/gradient", b"", version=0)


def test_restarted_producer_has_all_acknowledged_writes(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with Producer(path, address=HOST, port=0) as producer:
        port = producer.address[1]
        with StoreClient(HOST, port=port) as client:
            client.put("/a", b"1")
            client.put("/long", LONG)
    with StoreClient(HOST, port=port, deadline_s=20) as client, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.get, "/a")
        with Producer(path, address=HOST, port=port):
            assert waiting.result() == Content(b"1", 1)
            assert client.get("/long").value == LONG
            assert client.put("/a", b"2") == 2


def test_threads_share_a_client(client: StoreClient) -> None:
    client.put("/a", LONG)
    with ThreadPoolExecutor(4) as pool:
        assert all(content.value == LONG for content in pool.map(client.get, ["/a"] * 8))


def test_what_cannot_be_is_said_in_one_line(producer: Producer, tmp_path: Path) -> None:
    with StoreClient(HOST, port=producer.address[1]) as client:
        with pytest.raises(AbsentError, match="/nothing: there is no content of that name"):
            client.get("/nothing")
        with pytest.raises(StoreError, match="'nothing' is not a name"):
            client.get("nothing")
        producer.publish("/long", LONG)
        with pytest.raises(StoreError, match="/long: 200000 bytes are stored, more than the requested maximum of 1000"):
            client.get("/long", most_bytes=1000)
    with pytest.raises(StoreError, match=rf"no socket at {HOST}:{producer.address[1]}: "):
        Producer(str(tmp_path / "other.db"), address=HOST, port=producer.address[1])
    with pytest.raises(StoreError, match="'storage' is not an IPv4 address"):
        StoreClient("storage")
    with (
        Producer(":memory:", address=HOST, port=0, writers=["10.0.0.1"]) as guarded,
        StoreClient(HOST, port=guarded.address[1]) as client,
        pytest.raises(ForbiddenError, match="/a: this host may not write it"),
    ):
        client.put("/a", b"")


def test_who_may_write_is_said_where_others_reach_the_producer() -> None:
    problem = r"^0\.0\.0\.0 is not loopback: set the hosts that may write \(writers\), or anyone$"
    with pytest.raises(StoreError, match=problem):
        Producer(":memory:", address="0.0.0.0", port=0)
    with pytest.raises(StoreError, match=r"^both writers and anyone are given: choose one$"):
        Producer(":memory:", port=0, writers=[HOST], anyone=True)
    everywhere = "0.0.0.0"
    with (
        Producer(":memory:", address=everywhere, port=0, writers=[HOST]) as named,
        StoreClient(HOST, port=named.address[1], deadline_s=20) as client,
    ):
        assert client.put("/a", b"1") == 1
    with (
        Producer(":memory:", address=everywhere, port=0, writers=[]) as closed,
        StoreClient(HOST, port=closed.address[1], deadline_s=20) as client,
        pytest.raises(ForbiddenError, match="/a: this host may not write it"),
    ):
        client.put("/a", b"1")


def test_a_batch_ends_whatever_comes_in() -> None:
    with open_socket((HOST, 0)) as here, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        here.setblocking(False)
        for _ in range(100):
            there.sendto(b"no message", here.getsockname())
        assert len(list(receive(here, 40))) == 40
        assert len(list(receive(here, 256))) == 60


def test_what_does_not_decode_is_counted_and_answers_go_on(producer: Producer, client: StoreClient) -> None:
    assert client.put("/a", b"1") == 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        for number in range(1000):
            there.sendto(bytes([number & 255]) * (number % 80), producer.address)
            if number % 100 == 0:
                assert client.get("/a") == Content(b"1", 1)
    wait_until(lambda: producer.counters["malformed"] > 0)
    assert client.put("/a", b"2") == 2
    producer.close()


def test_a_full_disk_ends_writing_not_reading(
    producer: Producer, client: StoreClient, caplog: pytest.LogCaptureFixture
) -> None:
    database = producer._database._database  # so that the disk can be full

    def limit(pages: str) -> None:
        with producer._lock:
            database.query(f"PRAGMA max_page_count = {pages}")

    client.put("/a", b"1")
    client.put("/long", LONG)
    limit("1")  # SQLite takes as many as there are
    for name, value in (("/b", LONG[::-1]), ("/long", LONG[1:])):
        with pytest.raises(FullError, match=rf"^{name}: the producer has no room for it: its disk or a quota is full$"):
            client.put(name, value)
        with pytest.raises(StoreError, match=r"store\.db: cannot write the store: database or disk is full"):
            producer.publish(name, value)
    assert client.get("/a") == Content(b"1", 1)
    assert client.get("/long") == Content(LONG, 1)
    with pytest.raises(AbsentError):
        client.get("/b")
    problem = (
        "store.db: cannot write the store: database or disk is full: writes are refused, content is served as it was"
    )
    assert caplog.text.count(problem) == 1
    limit(str(1 << 20))
    assert client.put("/b", LONG[::-1]) == 1
    assert client.put("/long", LONG[1:]) == 2
    producer.check()


def test_a_broken_socket_ends_it_with_a_line(
    producer: Producer, client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put("/a", b"1")  # it serves
    monkeypatch.setattr("dataplane.store.producer._MOST_FAILURES", 2)
    with Path("/dev/null").open("rb") as nothing:
        os.dup2(nothing.fileno(), producer._socket.fileno())  # else nothing breaks a socket

    def is_over() -> bool:
        return not producer._thread.is_alive()

    wait_until(is_over)
    with pytest.raises(StoreError, match=r"^127\.0\.0\.1:\d+: cannot receive: Socket operation on non-socket$"):
        producer.check()
    with pytest.raises(StoreError, match="cannot receive"):
        producer.publish("/a", b"1")


def test_a_producer_that_starts_again_wants_another_proof(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with Producer(path, port=0) as producer:
        port = producer.address[1]
        client = StoreClient(HOST, port=port, deadline_s=20)
        assert client.put("/a", b"1") == 1
        assert client.put("/a", b"2") == 2
        assert producer.counters["unproven"] == 1
    with client, Producer(path, port=port) as producer:
        assert client.put("/a", b"3") == 3
        assert producer.counters["unproven"] == 1
    assert client.repeated == 0


def test_a_client_does_not_wait_for_ever() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((HOST, 0))
        with (
            StoreClient(HOST, port=silent.getsockname()[1], deadline_s=0.05) as client,
            pytest.raises(NoAnswerError, match=r"^/a: an answer did not arrive from 127\.0\.0\.1:\d+ within 0\.05 s$"),
        ):
            client.get("/a")
        port = silent.getsockname()[1]
    with (
        StoreClient(HOST, port=port, deadline_s=0.15) as client,
        pytest.raises(NoAnswerError, match=r"/a: the acknowledgement .* did not arrive .*: no server listens"),
    ):
        client.put("/a", b"")
