"""Watches under load, and of resources written by the same server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from controller.apiserver.registry.cache import ResourceCache
from controller.apiserver.registry.encoding import key_of
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.registry.registry import Registry
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Request
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.service import Service
from controller.apiserver.storage.sqlite import SqliteStorage
from controller.apiserver.watching import Pace
from dataplane.rpc.access.values import LOCAL
from tests.controller.apiserver.test_placements import node, pod
from tests.waiting import until


def test_pace_allows_a_few_looks_and_spaces_the_rest() -> None:
    pace, now_s, waits = Pace(0.0), 0.0, []
    for _ in range(40):
        wait_s = pace.wait_s(now_s)
        waits.append(wait_s)
        now_s += wait_s
    assert waits[:8] == [0.0] * 8
    assert all(abs(wait_s - 0.01) < 1e-9 for wait_s in waits[8:])
    assert pace.wait_s(now_s + 1.0) == 0.0


def test_resources_are_shown_as_they_are_read(tmp_path: Path) -> None:
    """A watch reuses the resources written by this server, without decoding them."""

    async def main() -> None:
        async with await SqliteStorage.open(str(tmp_path / "storage")) as storage:
            registry = Registry(storage, lambda: 7)
            cache = ResourceCache(registry, lambda: 0)
            service = Service(registry, cache)
            running = asyncio.create_task(cache.run())
            await cache.loaded.wait()
            await service.create(LOCAL, NODE, replace(node("h1"), metadata=Metadata(name="h1")))
            made = pod("a", Request(cpu_milli=100))
            created = await service.create(LOCAL, POD, replace(made, metadata=Metadata(name="a", labels={"x": "y"})))
            await service.bind(LOCAL, BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
            # Another writer changed the same key: it has to be decoded.
            key = key_of(POD, "a")
            stored = await storage.get(key)
            assert stored is not None
            revision = await storage.put(key, stored.value.replace(b'"x":"y"', b'"x":"z"'))
            await until(lambda: cache.ring.revision >= revision, "the cache does not follow")
            assert cache.get(NODE, "h1") == await registry.get(NODE, "h1")
            assert cache.get(POD, "a") == await registry.get(POD, "a")
            assert cache.get(POD, "a").metadata.labels == {"x": "z"}
            happenings = cache.ring.since(cache.ring.position_after(0) or 0, 100)
            assert happenings is not None
            shown = [happening.now for happening in happenings if isinstance(happening.now, Pod | Node)]
            assert shown[1] == created
            assert [resource.metadata.revision for resource in shown] == sorted(
                resource.metadata.revision for resource in shown
            )
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
