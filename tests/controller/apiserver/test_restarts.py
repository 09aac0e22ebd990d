"""State that survives a restart, state that is dropped, and changes by SIGHUP."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.encoding import encode, key_of
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.registry import Registry
from controller.apiserver.registry.selection import ALL
from controller.apiserver.resources import Decision, Metadata, Node, Pod, PodGroup
from controller.apiserver.resources.decision import DECISION, DecisionSpec, Outcome
from controller.apiserver.resources.pod import POD, Container, Phase, PodSpec, PodStatus
from controller.apiserver.resources.pod_group import POD_GROUP, GroupPhase, PodGroupSpec, PodGroupStatus
from controller.apiserver.retention import forget_records
from controller.apiserver.service import Service
from controller.apiserver.settings import Retention
from controller.apiserver.storage import Put
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.apiserver.tokens import TokenRequest
from controller.common.errors import GoneError, StorageError, UnavailableError
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access import Role
from dataplane.rpc.access.values import LOCAL
from tests.certificates import DAY, Authority
from tests.controller.apiserver.api_server import WAIT_S, Served, serving, settings_in
from tests.controller.apiserver.test_resources_over_http import happenings, pod
from tests.controller.apiserver.test_tls import tls_settings
from tests.waiting import until


def test_watch_resumes_after_a_restart_but_not_after_compaction(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path)
        async with serving(settings, tmp_path) as served:
            token = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))
            async with ApiClient(Place(served.url, token.token), tries=1) as user:
                first, second = [await user.of(Pod).create(pod(name)) for name in ("a", "b")]
        async with serving(settings, tmp_path) as served:
            pods = served.client.of(Pod)
            async with ApiClient(Place(served.url, token.token), tries=1) as user:
                assert (await user.of(Pod).list()).items == (first, second)
            third = await pods.create(pod("c"))
            missed = await happenings(pods.watch(first.metadata.revision), 2)
            assert [happening.resource for happening in missed] == [second, third]
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            await storage.compact(third.metadata.revision)
        async with serving(settings, tmp_path) as served:
            pods = served.client.of(Pod)
            with pytest.raises(GoneError, match=f"revision {first.metadata.revision} has been compacted.*list again"):
                await anext(pods.watch(first.metadata.revision))
            async with aclosing(pods.watch(third.metadata.revision)) as watch:
                assert (await anext(watch)).type is EventType.BOOKMARK

    asyncio.run(main())


def test_watch_resumed_before_the_restart_gets_heartbeats(tmp_path: Path) -> None:
    async def main() -> None:
        settings = settings_in(tmp_path, heartbeat_s=0.05)
        async with serving(settings, tmp_path) as served:
            first = (await served.client.of(Pod).create(pod("a"))).metadata.revision
            await served.client.create_token(TokenRequest(name="ann", role=Role.USER))  # a revision without a pod
        async with serving(settings, tmp_path) as served:
            watch = served.client.of(Pod).watch(first)
            assert [(await anext(watch)).type for _ in range(3)] == [EventType.BOOKMARK] * 3
            made = await served.client.of(Pod).create(pod("b"))
            assert [happening.resource for happening in await happenings(watch, 1)] == [made]
            await watch.aclose()

    asyncio.run(main())


def test_watch_sends_bookmarks_without_own_events(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings_in(tmp_path, heartbeat_s=0.1), tmp_path) as served:
            node = await served.client.of(Node).create(Node(metadata=Metadata(name="h1")))

            async def report() -> None:
                while True:
                    await served.client.of(Node).replace_status(replace(node, metadata=Metadata(name="h1")))

            reports = asyncio.create_task(report())
            async with local_timeout(WAIT_S, "a test"), aclosing(served.client.of(Pod).watch()) as watch:
                assert [(await anext(watch)).type for _ in range(4)] == [EventType.BOOKMARK] * 4
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)

    asyncio.run(main())


def test_many_events_come_in_pieces_each_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            registry = Registry(storage, time.time_ns)
            service = Service(registry, ResourceCache(registry, time.monotonic_ns))
            running = asyncio.create_task(service.run())
            await service.cache.loaded.wait()
            names = [f"p{number:04}" for number in range(900)]
            for start in range(0, 900, 100):  # a hundred per revision, so that pieces end within one
                puts = (Put(key_of(POD, name), encode(pod(name))) for name in names[start : start + 100])
                newest = await storage.transact(tuple(puts))
            await until(lambda: service.cache.ring.revision >= newest, "the cache does not follow")
            stream = b""
            lines = await service.watch(LOCAL, POD, ALL, 0)
            while stream.count(b'"PUT"') < 900:
                part = await anext(lines)
                assert part.count(b"\n") <= 256
                stream += part
            told = [json.loads(line)["name"] for line in stream.splitlines() if b'"PUT"' in line]
            assert told == names
            service.stop()
            running.cancel()

    asyncio.run(main())


def test_of_decisions_the_newest_are_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            times = iter(range(1, 1000))
            registry = Registry(storage, lambda: next(times))
            for number in range(150):
                spec = DecisionSpec(subject_kind="pod", subjects=("a",), outcome=Outcome.BOUND)
                await registry.create(DECISION, Decision(metadata=Metadata(name=f"d{number}"), spec=spec))
            cache = ResourceCache(registry, time.monotonic_ns)
            following = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            assert await forget_records(Retention(decisions=10), registry, cache) == 140
            left = await registry.list(DECISION, limit=100)
            assert {decision.metadata.name for decision in left.items} == {f"d{number}" for number in range(140, 150)}
            following.cancel()

    asyncio.run(main())


def test_ended_pods_and_groups_are_kept_until_retention_ends(tmp_path: Path) -> None:
    day_ns = 86_400 * 10**9

    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            now = [day_ns]
            registry = Registry(storage, lambda: now[0])
            template = PodSpec(containers=(Container(name="main", image="busybox"),))
            for name, group in (("old", None), ("of-group", "alive"), ("running", None), ("new", None)):
                spec = replace(template, group=group)
                await registry.create(POD, Pod(metadata=Metadata(name=name), spec=spec))
            for name in ("alive", "over"):
                spec_ = PodGroupSpec(size=1, template=template)
                await registry.create(POD_GROUP, PodGroup(metadata=Metadata(name=name), spec=spec_))

            def ended(at_ns: int) -> Callable[[Pod], Pod]:
                return lambda pod: replace(pod, status=PodStatus(phase=Phase.SUCCEEDED, finished_ns=at_ns))

            for name, at_ns in (("old", day_ns), ("of-group", day_ns), ("new", 2 * day_ns)):
                await registry.change(POD, name, ended(at_ns))
            over = PodGroupStatus(phase=GroupPhase.FINISHED, finished_ns=day_ns)
            await registry.change(POD_GROUP, "over", lambda group: replace(group, status=over))
            cache = ResourceCache(registry, time.monotonic_ns)
            following = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            now[0] = 2 * day_ns
            assert await forget_records(Retention(), registry, cache) == 0
            now[0] += 1
            assert await forget_records(Retention(), registry, cache) == 2
            pods, groups = await registry.list(POD, limit=9), await registry.list(POD_GROUP, limit=9)
            assert [pod.metadata.name for pod in pods.items] == ["new", "of-group", "running"]
            assert [group.metadata.name for group in groups.items] == ["alive"]
            following.cancel()

    asyncio.run(main())


def test_one_server_has_a_sqlite_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(settings_in(tmp_path), tmp_path):
            other = replace(settings_in(tmp_path), listen=("127.0.0.1:0",))
            with pytest.raises(StorageError, match=r"cannot open the storage: process \d+ has it"):
                await serve(other, asyncio.Event())

    asyncio.run(main())


def test_certificates_are_read_again_when_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, folder = Authority(tmp_path), tmp_path / "new"
    folder.mkdir()
    fresh = Authority(folder)
    certificate, key = old.sign("server", 30 * DAY)

    async def hang_up(served: Served, line: str) -> None:
        served.again.set()
        await until(lambda: line in caplog.text, lambda: caplog.text)

    async def main() -> None:
        async with serving(tls_settings(tmp_path, certificate, key), tmp_path) as served:
            made = await served.client.create_token(TokenRequest(name="ann", role=Role.USER))

            async def ask(authority: Authority) -> None:
                async with ApiClient(Place(served.url, made.token, authority.file), tries=1) as client:
                    await client.of(Pod).list()

            (tmp_path / "audit").rename(tmp_path / "kept")
            late, late_key = fresh.sign("late", -DAY)
            late.replace(certificate)
            late_key.replace(key)
            await hang_up(served, "reload failed; keeping the previous certificates: certificate")
            await ask(old)
            good, good_key = fresh.sign("good", 30 * DAY)
            good.replace(certificate)
            good_key.replace(key)
            await hang_up(served, f"certificate {certificate} loaded")
            await ask(fresh)
            with pytest.raises(UnavailableError, match="certificate rejected"):
                await ask(old)
            assert (tmp_path / "audit").is_file()  # opened again after it was renamed
            assert '"path":"/v1/tokens"' in (tmp_path / "kept").read_text()

    with caplog.at_level("INFO", logger="millrace.api"):
        asyncio.run(main())
