"""Named content over real frames in virtual time: copies in the producer's switch, writes, shifts, restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import accumulate

import pytest

from controller.network.content.settings import RecordedSettings, StoreSettings
from controller.network.tables.store import PACKETS
from dataplane.store import layout
from dataplane.store.dialogues import Content, reading, recording, writing
from dataplane.store.errors import AbsentError, ForbiddenError
from dataplane.store.names import Segment, digest
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.topology import file as topology_file
from dataplane.topology.values import Topology
from dataplane.wire.store import UDP_PORT, Kind, Message
from tests.integration.virtual_store import MS, US, Client, Server, World

INTERVAL_NS = 15 * MS
PARAMETERS = RecordedSettings(name="/job/parameters", bytes=3000, writers=("h2", "h3"), server="h4")
RESULT = RecordedSettings(name="/job/result", bytes=100, writers=("h2",), server="h4", forward=False)
RACK = """
millrace: 1
name: rack
defaults: {access: {rate: 10 Gbit/s, delay: 1 us}}
switches: [{name: s1}]
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s1}, {name: h4, switch: s1}]
links: []
"""


def rack() -> Topology:
    """Return one switch with four hosts."""
    return topology_file.loads(RACK)


class Rack(World):
    """One switch with four hosts; h4 is the producer."""

    def __init__(self, copies: int, *recorded: RecordedSettings) -> None:
        settings = StoreSettings(producers=("h4",), recorded=recorded, interval_ns=INTERVAL_NS, copies=copies)
        super().__init__(rack(), settings, pipeline_factory=compiled_pipeline)
        self.server = Server(self, "h4")
        self._port = 30_000

    def client(self, host: str) -> Client:
        self._port += 1
        return Client(self, host, "h4", port=self._port)

    def names(self, prefix: str, count: int) -> list[str]:
        """Serve this many names, whose values end with them."""
        names = [f"/{prefix}/{number}" for number in range(count)]
        for name in names:
            self.server.producer_core.publish(name, name.encode(), self.fabric.now_ns)
        return names

    def read_by_zipf(self, client: Client, names: Sequence[str], count: int) -> int:
        """Read so often, the first of the names most, one each 100 us; return how often the server was not asked."""
        chances, before = list(accumulate(1 / (index + 1) for index in range(len(names)))), self.server.interests
        for name in self.chance.choices(names, cum_weights=chances, k=count):
            content = client.talk(reading(name))
            assert isinstance(content, Content)
            assert content.value.endswith(name.encode())
            self.run(100 * US)
        return count - (self.server.interests - before)


@pytest.fixture(scope="module")
def narrow() -> Iterator[Rack]:
    """Return a rack whose switch has room for eight copies."""
    made = Rack(8)
    with closing(made.server):
        yield made


@pytest.fixture(scope="module")
def wide() -> Iterator[Rack]:
    """Return a rack whose switch has room for all, and records two names."""
    made = Rack(100, PARAMETERS, RESULT)
    with closing(made.server):
        yield made


def test_switch_answers_the_most_read_names_as_they_change(narrow: Rack) -> None:
    names, client, store = narrow.names("shift", 40), narrow.client("h1"), narrow.stores["s1"]
    narrow.read_by_zipf(client, names, 600)
    assert narrow.read_by_zipf(client, names, 300) > 120  # the first eight are 63 % of all
    assert len(store.copies) == 8
    assert {Segment(digest(name)) for name in names[:3]} <= set(store.copies)

    shifted = names[20:] + names[:20]
    narrow.read_by_zipf(client, shifted, 600)
    assert narrow.read_by_zipf(client, shifted, 300) > 120
    assert {Segment(digest(name)) for name in shifted[:3]} <= set(store.copies)


def test_restarted_controller_continues_with_existing_copies(narrow: Rack) -> None:
    names, client = narrow.names("again", 8), narrow.client("h1")
    narrow.read_by_zipf(client, names[:4], 400)
    held = narrow.stores["s1"].held()
    narrow.forget()
    narrow.connect("s1")
    assert narrow.stores["s1"].held().placed == held.placed
    assert narrow.read_by_zipf(client, names[:1], 3) == 3
    narrow.read_by_zipf(client, names[4:], 400)
    come = [
        placement for placement in narrow.stores["s1"].held().placed.values() if placement.segment not in held.placed
    ]
    assert come
    assert min(placement.generation for placement in come) >= held.mark


def test_restarted_switch_regains_names_and_serves_no_old_data(narrow: Rack) -> None:
    names, client = narrow.names("restart", 4), narrow.client("h1")
    narrow.read_by_zipf(client, names, 400)
    held = dict(narrow.stores["s1"].held().placed)
    assert Segment(digest(names[0])) in held
    narrow.restart("s1")
    narrow.server.producer_core.publish(names[0], b"after " + names[0].encode(), narrow.fabric.now_ns)
    narrow.connect("s1")
    again = narrow.stores["s1"].held()
    assert again.placed.keys() == held.keys()
    assert min(placement.generation for placement in again.placed.values()) > max(
        placement.generation for placement in held.values()
    )
    assert again.mark > max(placement.generation for placement in again.placed.values())
    assert client.talk(reading(names[0])) == Content(b"after " + names[0].encode(), 2)
    assert narrow.read_by_zipf(client, names[:1], 3) == 3


def test_nobody_reads_what_an_acknowledged_write_has_replaced(wide: Rack) -> None:
    names = wide.names("write", 3)
    readers = [wide.client(host) for host in ("h1", "h3")]
    writers = [wide.client(host) for host in ("h2", "h3")]
    chance, versions, reads, before = random.Random(5), dict.fromkeys(names, 1), 0, wide.server.interests
    wide.loss = 0.03
    for number in range(100):
        name = chance.choice(names)
        write = chance.choice(writers).begin(writing(name, b"%d %s" % (number, name.encode())))
        while not write.is_over:
            wanted = chance.choice(names)
            least = versions[wanted]
            content = chance.choice(readers).talk(reading(wanted))
            assert isinstance(content, Content)
            assert content.version >= least, (wanted, content)
            versions[wanted] = max(versions[wanted], content.version)
            reads += 1
        assert isinstance(write.result, int)
        versions[name] = max(versions[name], write.result)
        wide.run(chance.randrange(2 * MS))
    wide.loss = 0.0
    assert wide.server.interests - before < reads / 2


def test_long_values_are_copied_in_segments(wide: Rack) -> None:
    (name,), reader, writer = wide.names("long", 1), wide.client("h1"), wide.client("h2")
    value = random.Random(1).randbytes(10_000)
    for version in (2, 3):
        assert writer.talk(writing(name, value)) == version
        for _ in range(30):
            assert reader.talk(reading(name)) == Content(value, version)
            wide.run(2 * MS)
        before = wide.server.interests
        assert reader.talk(reading(name)) == Content(value, version)
        assert wide.server.interests == before
        value = value[::-1]


def test_parameters_that_workers_return_are_read_from_the_switch(wide: Rack) -> None:
    worker, reader, stranger = (wide.client(host) for host in ("h2", "h3", "h1"))
    value = bytes(range(250)) * 12
    worker.talk(recording(PARAMETERS.name, value, version=1))
    worker.talk(recording(RESULT.name, b"done", version=1))
    assert wide.server.producer_core.read(PARAMETERS.name, 0) == value
    before = wide.server.interests
    assert reader.talk(reading(PARAMETERS.name)) == Content(value, 1)
    assert reader.talk(reading(RESULT.name)) == Content(b"done", 1)
    assert wide.server.interests == before
    with pytest.raises(ForbiddenError, match="/job/result: this host may not write it"):
        stranger.talk(recording(RESULT.name, b"wrong", version=2))
    forged = Message(Kind.PUT, digest(RESULT.name), version=2, content=layout.in_place(b"wrong")[0])
    wide.carry("h1", wide.topology.host["h4"].ipv4, (1, UDP_PORT), forged, claims="h2")
    wide.run(MS)
    assert reader.talk(reading(RESULT.name)) == Content(b"done", 1)
    wide.restart("s1")
    wide.connect("s1")
    assert reader.talk(reading(PARAMETERS.name)) == Content(value, 1)
    with pytest.raises(AbsentError, match="/job/result: there is no content of that name"):
        reader.talk(reading(RESULT.name))
    worker.talk(recording(RESULT.name, b"again", version=2))
    assert reader.talk(reading(RESULT.name)) == Content(b"again", 2)
    assert len(wide.sessions["s1"].packets(PACKETS)) > 4
