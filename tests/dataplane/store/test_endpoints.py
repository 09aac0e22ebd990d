"""Producer and client over real sockets, without a switch between them."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dataplane.store.client import StoreClient
from dataplane.store.dialogues import Content
from dataplane.store.errors import AbsentError, ForbiddenError, NoAnswerError, StaleError, StoreError
from dataplane.store.producer import Producer

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
    with pytest.raises(StaleError, match="/job/gradient: version 4 is there, which is not older"):
        client.record("/job/gradient", b"", version=3)
    with pytest.raises(StoreError, match="versions are 1 to 4294967295, not 0"):
        client.record("/job/gradient", b"", version=0)


def test_a_producer_that_starts_again_has_all_that_it_acknowledged(tmp_path: Path) -> None:
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
        with pytest.raises(StoreError, match="/long: 200000 bytes are there, more than the 1000 that are wanted"):
            client.get("/long", most_bytes=1000)
    with pytest.raises(StoreError, match=rf"no socket at {HOST}:{producer.address[1]}: "):
        Producer(str(tmp_path / "other.db"), address=HOST, port=producer.address[1])
    with pytest.raises(StoreError, match="'storage' is no IPv4 address"):
        StoreClient("storage")
    with (
        Producer(":memory:", address=HOST, port=0, writers=["10.0.0.1"]) as guarded,
        StoreClient(HOST, port=guarded.address[1]) as client,
        pytest.raises(ForbiddenError, match="/a: this host may not write it"),
    ):
        client.put("/a", b"")


def test_a_client_does_not_wait_for_ever() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((HOST, 0))
        with (
            StoreClient(HOST, port=silent.getsockname()[1], deadline_s=0.05) as client,
            pytest.raises(NoAnswerError, match=r"^/a: an answer did not come from 127\.0\.0\.1:\d+ within 0\.05 s$"),
        ):
            client.get("/a")
        port = silent.getsockname()[1]
    with (
        StoreClient(HOST, port=port, deadline_s=0.15) as client,
        pytest.raises(NoAnswerError, match=r"/a: the acknowledgement .* did not come .*: no server listens"),
    ):
        client.put("/a", b"")
