"""The path server behind gRPC, on a UNIX socket, with a feed made of queues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.record_columns import RecordColumns
from collectors.values import DelaySource, FlowKey, FlowMove, HopRecord, LinkState, NetworkSignals, Snapshot
from controller.common.errors import PathError
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.paths.core import PathServerCore
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.signals import LEAST_GAP_NS
from controller.network.paths.records.codec import thaw
from controller.network.paths.records.recorder import Recorder
from controller.network.paths.records.values import DrainChange, HistoryQuery, LinkChange, PathServerStatus, RecordQuery
from controller.network.paths.service import paths_pb2 as pb
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.service.move_reports import move_of
from controller.network.paths.service.process import serve
from controller.network.paths.service.publication import Publication
from controller.network.paths.service.rounds import Rounds
from controller.network.paths.settings import DecideSettings, ManagedFlow, PathServerSettings, RecordSettings
from dataplane.clock import VirtualClock
from dataplane.topology.values import LinkKey, Topology
from tests.logged import stacks
from tests.waiting import finish_within, until

MakeTopology = Callable[..., Topology]

MS = 1_000_000
AD = FlowSpec("ha", "hd")
PINNED = Route(AD, ("a", "c", "d"))
BOUND_S = 20.0


@pytest.fixture(scope="module")
def topology(diamond_of: MakeTopology) -> Topology:
    """Return the diamond where a-b-d is the only base path from a to d."""
    return diamond_of((5 * MS, 7 * MS, 5 * MS, 7 * MS, 20 * MS))


@dataclass
class FakeFeed:
    """A feed that is fed by the test."""

    waiting: asyncio.Queue[Snapshot] = field(default_factory=asyncio.Queue)
    batches: asyncio.Queue[tuple[HopRecord, ...]] = field(default_factory=asyncio.Queue)
    signs: asyncio.Queue[NetworkSignals] = field(default_factory=asyncio.Queue)
    moves: list[FlowMove] = field(default_factory=list)

    async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
        assert interval_ns == 100 * MS
        while True:
            yield await self.waiting.get()

    async def snapshot(self) -> Snapshot:
        return await self.waiting.get()

    async def record_columns(self, reports_per_s: int | None = None) -> AsyncIterator[RecordColumns]:
        assert reports_per_s == RecordSettings().reports_per_s
        yield RecordColumns.of(())
        while True:
            yield RecordColumns.of(await self.batches.get())

    async def signals(self, queue_frames: float, shortest_gap_ns: int) -> AsyncIterator[NetworkSignals]:
        assert (queue_frames, shortest_gap_ns) == (DecideSettings().idle_frames, LEAST_GAP_NS)
        yield NetworkSignals()
        while True:
            yield await self.signs.get()

    async def note_moves(self, moves: Sequence[FlowMove]) -> None:
        self.moves += moves


def congested(topology: Topology) -> Snapshot:
    """Return a snapshot with a long queue on a->b."""
    link = topology.directed_links[LinkKey("a", "b")]
    state = LinkState(
        link.key, link.rate_bps, 60 * MS, 60 * MS, 60 * MS, 9.0, 0.5, 5_000_000, None, 0, 9, DelaySource.STAMPS
    )
    return Snapshot(0, {link.key: state}, {}, {})


@dataclass
class Bench:
    """A running path server, its feed and a client."""

    feed: FakeFeed
    client: RouteClient
    settings: PathServerSettings
    clock: VirtualClock

    async def until_status(self, holds: Callable[[PathServerStatus], bool]) -> None:
        """Wait until a condition holds for the path server's status."""

        async def does_hold() -> bool:
            return holds(await self.client.status())

        await until(does_hold)

    async def until_records(self, count: int, query: RecordQuery | None = None) -> tuple[HopRecord, ...]:
        """Return the records once there are at least `count`."""
        records: tuple[HopRecord, ...] = ()

        async def are_kept() -> bool:
            nonlocal records
            records = await self.client.records(query or RecordQuery())
            return len(records) >= count

        await until(are_kept, lambda: records)
        return records


@asynccontextmanager
async def running(topology: Topology, folder: Path) -> AsyncIterator[Bench]:
    """Run a path server that looks after ha->hd."""
    settings = PathServerSettings(
        topology="unused",
        feed="unused",
        listen=f"unix:{folder}/paths.sock",
        flows=(ManagedFlow(src="ha", dst="hd", rate_bps=1_000_000),),
        decide=DecideSettings(settle_ns=0, hold_down_ns=0, confirm_rounds=1),
        records=RecordSettings(database=str(folder / "paths.db")),
    )
    feed, clock, stop, ready = FakeFeed(), VirtualClock(), asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(serve(settings, topology, feed, clock, stop, on_ready=lambda _line: ready.set()))
    await ready.wait()
    client_settings = RouteClientSettings(address=settings.listen, first_wait_ns=MS, longest_wait_ns=10 * MS)
    try:
        async with RouteClient(client_settings, rng=random.Random(1)) as client:
            yield Bench(feed, client, settings, clock)
    finally:
        stop.set()
        await task


def play(scene: Awaitable[None]) -> None:
    """Run a scene on an event loop of its own, for a bounded time."""

    async def whole() -> None:
        await finish_within(scene, BOUND_S)

    asyncio.run(whole())


def hop(time_ns: int) -> HopRecord:
    """Return a hop record from ha to hd."""
    flow = FlowKey(IPv4Address("10.0.1.1"), IPv4Address("10.0.4.1"), 17, 1, 2)
    return HopRecord(time_ns, flow, 4, 1, 0, 3, 1, 1, 2, 10, 0, 0, 5, 6, 7, 8)


def test_reported_dead_link_is_left_at_once_and_in_history(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            routes = bench.client.routes()
            assert await anext(routes) == RouteSet(0, ())
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            await bench.client.link_changed(LinkChange(LinkKey("b", "d"), up=False))
            assert await anext(routes) == RouteSet(1, (Route(AD, ("a", "c", "d")),))
            [decision] = (await bench.client.history(HistoryQuery(src="ha"))).decisions
            assert decision.reason == "link b->d of a-b-d is dead; a-c-d is its backup"
            await until(lambda: bool(bench.feed.moves))
            assert bench.feed.moves == [move_of(decision)]
            assert (await bench.client.history(HistoryQuery(src="hd"))).decisions == ()
            with pytest.raises(PathError, match="no link a->d between switches"):
                await bench.client.link_changed(LinkChange(LinkKey("a", "d"), up=False))

    play(scene())


def test_client_pins_and_releases_flows_and_gets_error_codes(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            routes, decisions = bench.client.routes(), bench.client.decisions()
            assert (await anext(routes)).pins == ()
            await bench.client.pin(AD, ("a", "c", "d"))
            assert await anext(routes) == RouteSet(1, (PINNED,), pins=(PINNED,))
            assert (await anext(decisions)).reason == "pinned to a-c-d until it is released"
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            assert (await bench.client.why(AD)).pinned == ("a", "c", "d")
            assert (await bench.client.status()).pinned == 1
            await bench.client.link_changed(LinkChange(LinkKey("b", "d"), up=False))
            for flow, path, code in (
                (AD, ("a", "d"), grpc.StatusCode.INVALID_ARGUMENT),
                (AD, ("a", "b", "d"), grpc.StatusCode.FAILED_PRECONDITION),
                (FlowSpec("hb", "hd"), ("b", "d"), grpc.StatusCode.NOT_FOUND),
            ):
                with pytest.raises(PathError, match=r"^path server at unix:[^\n]*$") as caught:
                    await bench.client.pin(flow, path)
                assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
                assert caught.value.__cause__.code() is code
            await bench.client.release(AD)
            assert (await bench.client.current_routes()).pins == ()
            with pytest.raises(PathError, match="flow ha->hd is not pinned"):
                await bench.client.release(AD)
            await routes.aclose()
            await decisions.aclose()  # type: ignore[attr-defined]

    play(scene())


def test_client_drains_and_puts_back_and_gets_error_codes(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            routes = bench.client.routes()
            assert (await anext(routes)).drained == ()
            asked = DrainChange("b", drained=True, by="kim", note="new optics")
            shown = await bench.client.foresee_drain(asked)
            effect = await bench.client.drain(replace(asked, revision=shown.revision))
            assert effect.moves == shown.moves
            around = await anext(routes)
            assert (around.routes, LinkKey("b", "d") in around.drained) == ((Route(AD, ("a", "c", "d")),), True)
            [drain] = (await bench.client.drains()).drains
            assert (drain.element, drain.by, drain.note) == ("b", "kim", "new optics")
            assert (await bench.client.status()).drained == 1
            for change, code in (
                (DrainChange("x", drained=True), grpc.StatusCode.INVALID_ARGUMENT),
                (DrainChange("a->b", drained=False), grpc.StatusCode.NOT_FOUND),
                (replace(asked, revision=shown.revision), grpc.StatusCode.FAILED_PRECONDITION),
                (replace(asked, note="x" * 2000), grpc.StatusCode.INVALID_ARGUMENT),
            ):
                with pytest.raises(PathError, match=r"^path server at unix:[^\n]*$") as caught:
                    await bench.client.drain(change)
                assert isinstance(caught.value.__cause__, grpc.aio.AioRpcError)
                assert caught.value.__cause__.code() is code
            await bench.client.drain(DrainChange("b", drained=False))
            assert (await bench.client.current_routes()).drained == ()
            await routes.aclose()

    play(scene())


def test_an_explanation_has_the_record_rows_of_its_flow(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.feed.waiting.put_nowait(congested(topology))
            bench.feed.batches.put_nowait((hop(5),))
            await bench.until_status(lambda status: status.last_step_ns is not None)
            await bench.until_records(1)
            [row] = (await bench.client.why(AD)).records
            assert (row.received_ns, row.switch, row.next_hop, row.hop_latency_ns) == (5, "a", "b", 10)

    play(scene())


def test_routes_decisions_and_reasons_reach_a_client(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            routes, decisions = bench.client.routes(), bench.client.decisions()
            assert await anext(routes) == RouteSet(0, ())
            bench.feed.waiting.put_nowait(congested(topology))
            assert await anext(routes) == RouteSet(1, (Route(AD, ("a", "c", "d")),))
            decision = await anext(decisions)
            assert (decision.flow, decision.old_path, decision.new_path) == (AD, ("a", "b", "d"), ("a", "c", "d"))
            told = await bench.client.why(AD)
            assert told.present.switches == ("a", "c", "d")
            assert told.moves == (decision,)
            with pytest.raises(PathError, match=": flow hd->ha is not managed"):
                await bench.client.why(FlowSpec("hd", "ha"))
            await routes.aclose()
            await decisions.aclose()  # type: ignore[attr-defined]

    play(scene())


def test_a_sign_of_a_queue_has_a_snapshot_asked_for_at_once(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.feed.signs.put_nowait(NetworkSignals(queue_frames=1))
            bench.feed.signs.put_nowait(NetworkSignals(queue_frames=99))
            await bench.until_status(lambda status: status.counters["rounds_woken"] >= 1)
            # Two readers: the periodic one and the one out of turn.
            for _ in range(2):
                bench.feed.waiting.put_nowait(congested(topology))
            await until(bench.feed.waiting.empty, "a snapshot is not read")
            assert (await bench.client.status()).counters["rounds_woken"] == 1

    play(scene())


def test_records_are_kept_and_found(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.feed.batches.put_nowait((hop(1), hop(2)))
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            assert await bench.until_records(2, RecordQuery(link=LinkKey("a", "b"))) == (hop(2), hop(1))
            assert (await bench.client.status()).counters["records"] == 2
            with pytest.raises(PathError, match="takes exactly one of"):
                await bench.client.records(RecordQuery(link=LinkKey("a", "b"), start_ns=0, end_ns=1))
            with pytest.raises(PathError, match="not a valid time span"):
                await bench.client.records(RecordQuery(start_ns=0, end_ns=1 << 63))
            assert await bench.client.records(RecordQuery(limit=1)) == (hop(2),)
            assert (await bench.client.current_routes()).version == 0

    play(scene())


def test_records_have_times_of_the_path_server_s_clock(topology: Topology, tmp_path: Path) -> None:
    """The collector has its machine's clock; records before the first snapshot wait until its offset is known."""

    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.clock.advance_to(1_000_000 * MS)
            bench.feed.batches.put_nowait((hop(7 * MS),))
            bench.feed.waiting.put_nowait(Snapshot(9 * MS, {}, {}, {}))
            assert [row.received_ns for row in await bench.until_records(1)] == [999_998 * MS]

    play(scene())


def test_failed_records_are_counted_and_logged_once(
    topology: Topology, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PathError("the disk is full")

    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            bench.feed.waiting.put_nowait(Snapshot(0, {}, {}, {}))
            with monkeypatch.context() as broken:
                broken.setattr(Recorder, "record_columns", refuse)
                for _ in range(3):
                    bench.feed.batches.put_nowait((hop(1), hop(2)))
                await bench.until_status(lambda status: status.counters["records_failed"] >= 6)
            bench.feed.batches.put_nowait((hop(3),))
            await bench.until_records(1)

    play(scene())
    assert caplog.text.count("the disk is full") == 1


def test_client_gets_the_same_routes_after_a_restart(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        address = f"unix:{tmp_path}/paths.sock"
        settings = RouteClientSettings(address=address, first_wait_ns=MS, longest_wait_ns=10 * MS)
        waits: list[str] = []
        async with RouteClient(settings, on_wait=waits.append) as client:
            routes = client.routes()
            async with running(topology, tmp_path) as bench:
                assert (await anext(routes)).version == 0
                bench.feed.waiting.put_nowait(congested(topology))
                moved = await anext(routes)
            async with running(topology, tmp_path):
                assert await anext(routes) == moved
            await routes.aclose()
        assert waits
        assert address in waits[0]

    play(scene())


def test_an_old_snapshot_is_counted_and_moves_nothing(topology: Topology) -> None:
    async def scene() -> None:
        settings = PathServerSettings(topology="", feed="", max_snapshot_age_ns=5)
        core = PathServerCore(topology, DecideSettings(confirm_rounds=1), flows=(ManagedFlow(src="ha", dst="hd"),))
        with ThreadPoolExecutor(1) as worker:
            rounds = Rounds(core, worker, Publication(core), settings, clock=VirtualClock(100))
            await rounds.step(congested(topology), taken_ns=94)
            assert (rounds.counters["stale_snapshots"], core.routes.version) == (1, 0)
            await rounds.step(congested(topology), taken_ns=95)
            assert core.routes.version == 1

    play(scene())


def test_an_address_that_cannot_be_had_is_named(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        settings = PathServerSettings(topology="", feed="", listen="unix:/nowhere/at/all/x.sock")
        with pytest.raises(PathError, match="cannot serve routes at unix:/nowhere"):
            await serve(settings, topology, FakeFeed(), VirtualClock(), asyncio.Event())

    play(scene())


def test_permanent_feed_failure_ends_the_server_with_its_reason(topology: Topology, tmp_path: Path) -> None:
    class Broken(FakeFeed):
        async def snapshots(self, interval_ns: int) -> AsyncGenerator[Snapshot, None]:
            if interval_ns:
                raise PathError("another version")
            yield Snapshot(0, {}, {}, {})

    async def scene() -> None:
        settings = PathServerSettings(topology="", feed="", listen=f"unix:{tmp_path}/x.sock")
        with pytest.raises(PathError, match="another version"):
            await serve(settings, topology, Broken(), VirtualClock(), asyncio.Event())

    play(scene())


def test_query_without_a_server_is_an_error(tmp_path: Path) -> None:
    async def scene() -> None:
        async with RouteClient(RouteClientSettings(address=f"unix:{tmp_path}/no.sock")) as client:
            with pytest.raises(
                PathError, match=r"path server at unix:.*no\.sock: cannot connect: No such file or directory$"
            ):
                await client.status()
        with pytest.raises(PathError, match="outside its `async with`"):
            await client.status()

    play(scene())


@given(st.binary(max_size=60))
def test_no_stored_bytes_do_more_than_fail_to_decode(message: bytes) -> None:
    for schema in (RouteSet, Decision, FlowSpec, RecordQuery):
        try:
            thaw(message, schema)
        except PathError:
            continue


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x92\x01\xc0", b"\x78\x01", b"\x0a\x01\xff"])
def test_a_foreign_body_is_refused_in_one_line(
    topology: Topology, tmp_path: Path, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench, grpc.aio.insecure_channel(bench.settings.listen) as channel:
            for method in pb.DESCRIPTOR.services_by_name["Paths"].methods:
                kind = channel.unary_stream if method.server_streaming else channel.unary_unary
                call: Any = kind(f"/{method.containing_service.full_name}/{method.name}", None, None)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await (call(body).read() if method.server_streaming else call(body))
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
                assert "\n" not in (caught.value.details() or "")
            assert (await bench.client.status()).version == 0

    play(scene())
    assert stacks(caplog) == []


def test_unencodable_request_is_an_error_of_the_client(topology: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with running(topology, tmp_path) as bench:
            with pytest.raises(PathError, match=r"path server at unix:.*: this cannot be asked: .*out of range"):
                await bench.client.why(FlowSpec("ha", "hd", protocol=-1))

    play(scene())
