"""The API server is killed at random moments, again and again; nothing that it acknowledged may be lost.

Writers create pods and bind each to a node through the client; each says what was acknowledged. After each death the
process is started again on the same storage: every acknowledged pod is there, every acknowledged binding too, the
node's shares are those of the pods that are on it, and a watch that follows over all deaths has seen every pod.

Usage: python -m tests.soak.api [--kills N] [--seed N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from controller.apiserver.client import ApiClient, Event, Listing, Place
from controller.apiserver.registry.events import EventType
from controller.apiserver.registry.placements import Binding, BindingRequest
from controller.apiserver.resources import Metadata, Node, Pod
from controller.apiserver.resources.hardware import Hardware, Request
from controller.apiserver.resources.node import NodeSpec
from controller.apiserver.resources.pod import Container, PodSpec
from controller.common.errors import ApiError

WRITERS = 4
_SETTLE_S = 30.0
_NODE = "h1"


@dataclass(slots=True)
class Report:
    """Result of the soak; `problems` is empty on success."""

    kills: int = 0
    created: int = 0
    bound: int = 0
    unacknowledged: int = 0
    """Pods created whose writer got no acknowledgement."""
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Acknowledged:
    """Acknowledged writes, and those seen by a watch."""

    created: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    seen: dict[str, int] = field(default_factory=dict)


async def soak(kills: int, seed: int) -> Report:
    """Kill the process this many times, after up to half a second each."""
    rng, report, record = random.Random(seed), Report(), Acknowledged()
    with tempfile.TemporaryDirectory(prefix="api") as name:
        folder = Path(name)
        (folder / "settings.yaml").write_text(
            f"storage: {{sqlite: {folder}/storage}}\nlisten: ['unix:{folder}/api.sock']\n", encoding="utf-8"
        )
        api = Place(f"unix:{folder}/api.sock")
        async with ApiClient(api) as client:
            following = asyncio.create_task(_follow(client, record))
            for life in range(kills):
                async with _server(folder) as server:
                    await _check(client, record, report, first=life == 0)
                    writers = [
                        asyncio.create_task(_write(api, f"w{life}-{number}", record)) for number in range(WRITERS)
                    ]
                    await asyncio.sleep(rng.uniform(0.02, 0.5))
                    server.kill()
                    await asyncio.gather(*writers)
                report.kills += 1
                if report.problems:
                    break
            async with _server(folder):
                await _check(client, record, report, first=False)
                await _check_seen(client, record, report)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    report.created, report.bound = len(record.created), len(record.bound)
    return report


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the process, and wait for its ready line."""
    command = (sys.executable, "-m", "controller.apps.cli", "api", "serve", "-s", str(folder / "settings.yaml"))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    line = await process.stderr.readline()
    assert b"ready" in line, line
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _write(server: Place, name: str, record: Acknowledged) -> None:
    """Create and bind pods until the server is gone."""
    async with ApiClient(server, tries=1) as client:
        number = 0
        while True:
            pod = f"{name}-{number}"
            spec = PodSpec(containers=(Container(name="main", image="x"),), request=Request(cpu_milli=1))
            try:
                await client.of(Pod).create(Pod(metadata=Metadata(name=pod), spec=spec))
                record.created.add(pod)
                if number % 4 == 0:
                    await client.bind(BindingRequest(bindings=(Binding(pod=pod, node=_NODE),)))
                    record.bound.add(pod)
            except ApiError:
                return
            number += 1


async def _check(client: ApiClient, record: Acknowledged, report: Report, *, first: bool) -> None:
    if first:
        hardware = Hardware(cpu_milli=1_000_000)
        await client.of(Node).create(Node(metadata=Metadata(name=_NODE), spec=NodeSpec(hardware=hardware)))
        return
    pods = {pod.metadata.name: pod for pod in (await client.of(Pod).list()).items}
    node = await client.of(Node).get(_NODE)
    report.problems += [f"{name} was acknowledged and is lost" for name in record.created - pods.keys()]
    placed = {name for name, pod in pods.items() if pod.status.node == _NODE}
    report.problems += [f"the binding of {name} was acknowledged and is lost" for name in record.bound - placed]
    shares = [share.pod for share in node.shares]
    if sorted(shares) != sorted(placed):
        report.problems.append(f"{len(shares)} shares, {len(placed)} pods on the node")
    report.unacknowledged = len(pods.keys() - record.created)


async def _follow(client: ApiClient, record: Acknowledged) -> None:
    """Record the pods that a watch sees, over all deaths of the server, and their revisions."""
    async for update in client.of(Pod).follow():
        if isinstance(update, Listing):
            for pod in update.items:
                record.seen.setdefault(pod.metadata.name, pod.metadata.revision)
        elif isinstance(update, Event) and update.type is EventType.PUT:
            record.seen[update.name] = update.revision


async def _check_seen(client: ApiClient, record: Acknowledged, report: Report) -> None:
    """Wait until the watch has caught up; unseen pods count as lost."""
    pods = {pod.metadata.name: pod.metadata.revision for pod in (await client.of(Pod).list()).items}
    try:
        async with asyncio.timeout(_SETTLE_S):
            while record.seen != pods:
                await asyncio.sleep(0.05)
    except TimeoutError:
        report.problems.append(f"the watch has seen {len(record.seen)} pods of {len(pods)}, or older ones")


def main(argv: list[str]) -> int:
    """Print the report as one line of JSON; return 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    report = asyncio.run(soak(options.kills, options.seed))
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
