"""Speed of the storage, by itself and behind the API server.

`writes_per_s`: durable transactions of one key each, many in flight at a time, with SQLite at synchronous=FULL.
`watch_p99_ms`: from the call of a write to its event at each of 100 listeners. The same through HTTP: pod creations by
several clients, and the time to 100 watches over HTTP, all in one process that shares its CPU with the server.

Usage: python -m tests.benchmarks.ground_storage
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from controller.apiserver.client import ApiClient, Place
from controller.apiserver.process import serve
from controller.apiserver.registry.events import EventType
from controller.apiserver.resources import Metadata, Pod
from controller.apiserver.resources.pod import Container, PodSpec
from controller.apiserver.settings import ApiLimits, ApiSettings, StoragePlace
from controller.apiserver.storage import Storage
from controller.apiserver.storage.sqlite import SqliteStorage

LISTENERS = 100
WRITES = 20_000
_AT_ONCE = 256
_VALUE = bytes(256)
_EVENTS = 200
_CLIENTS = 16


def figures(writes: int = WRITES) -> dict[str, float]:
    """Return the figures, by name, of this many writes."""
    with tempfile.TemporaryDirectory(prefix="ground") as folder:
        results = asyncio.run(_storage(Path(folder), writes))
        return results | asyncio.run(_over_http(Path(folder), writes))


async def _storage(folder: Path, count: int) -> dict[str, float]:
    async with await SqliteStorage.open(str(folder / "writes")) as storage:
        writes = await _writes_per_s(storage, count)
    async with await SqliteStorage.open(str(folder / "watch")) as storage:
        return {"writes_per_s": writes, "watch_p99_ms": await _watch_p99_ms(storage)}


async def _writes_per_s(storage: Storage, count: int) -> float:
    async def write(number: int) -> None:
        for key in range(number, count, _AT_ONCE):
            await storage.put(f"/bench/{key % 4096}", _VALUE)

    started = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(_AT_ONCE)))
    return count / (time.perf_counter() - started)


async def _watch_p99_ms(storage: Storage) -> float:
    start, waits_s, sent = await storage.revision(), list[float](), dict[str, float]()

    async def listen() -> None:
        left = _EVENTS
        async for events in storage.watch("/bench/", after=start):
            now = time.perf_counter()
            waits_s.extend(now - sent[event.key] for event in events)
            left -= len(events)
            if left <= 0:
                return

    listeners = [asyncio.create_task(listen()) for _ in range(LISTENERS)]
    for number in range(_EVENTS):
        await asyncio.sleep(0.002)
        sent[f"/bench/{number}"] = time.perf_counter()
        await storage.put(f"/bench/{number}", _VALUE)
    await asyncio.gather(*listeners)
    return _p99_ms(waits_s)


async def _over_http(folder: Path, writes: int) -> dict[str, float]:
    settings = ApiSettings(
        storage=StoragePlace(sqlite=str(folder / "api")),
        listen=(f"unix:{folder}/api.sock",),
        limits=ApiLimits(requests_per_s=1_000_000),
    )
    stop, ready = asyncio.Event(), asyncio.Event()
    server = asyncio.create_task(serve(settings, stop, lambda _: ready.set()))
    await ready.wait()
    try:
        api = Place(f"unix:{folder}/api.sock")
        creates = await _creates_per_s(api, max(writes // 13, 100))
        return {"api_creates_per_s": creates, "api_watch_p99_ms": await _http_watch_p99_ms(api)}
    finally:
        stop.set()
        await server


async def _creates_per_s(server: Place, count: int) -> float:
    async def create(number: int) -> None:
        async with ApiClient(server) as client:
            for name in range(number, count, _CLIENTS):
                await client.of(Pod).create(_pod(f"p{name}"))

    started = time.perf_counter()
    await asyncio.gather(*(create(number) for number in range(_CLIENTS)))
    return count / (time.perf_counter() - started)


async def _http_watch_p99_ms(server: Place) -> float:
    waits_s, sent, count = list[float](), dict[str, float](), 100

    async def listen(client: ApiClient, begun: asyncio.Semaphore) -> None:
        left = count
        events = client.of(Pod).watch()
        async for event in events:
            if event.type is EventType.BOOKMARK:
                begun.release()
            else:
                waits_s.append(time.perf_counter() - sent[event.name])
                left -= 1
            if not left:
                break
        await events.aclose()

    begun = asyncio.Semaphore(0)
    clients = [ApiClient(server) for _ in range(LISTENERS)]
    listeners = [asyncio.create_task(listen(client, begun)) for client in clients]
    for _ in range(LISTENERS):
        await begun.acquire()
    async with ApiClient(server) as writer:
        for number in range(count):
            sent[f"w{number}"] = time.perf_counter()
            await writer.of(Pod).create(_pod(f"w{number}"))
            await asyncio.sleep(0.1)
    await asyncio.gather(*listeners)
    for client in clients:
        await client.close()
    return _p99_ms(waits_s)


def _pod(name: str) -> Pod:
    return Pod(metadata=Metadata(name=name), spec=PodSpec(containers=(Container(name="main", image="busybox"),)))


def _p99_ms(waits_s: list[float]) -> float:
    return sorted(waits_s)[int(len(waits_s) * 0.99)] * 1e3


def main() -> None:
    """Print the figures for people, and as JSON."""
    results = figures()
    for name, value in results.items():
        print(f"{name:20} {value:12,.1f}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
