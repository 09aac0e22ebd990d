"""Health checks of daemons: each over its own service, within a deadline."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc

from collectors.feed.client import FeedClient, FeedClientSettings
from controller.apps.up.plan import UpPlan
from controller.apps.up.values import Health, metrics_address
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.status.service import ControllerClient, ControllerClientSettings
from dataplane.clock import NS_PER_S
from dataplane.errors import MillraceError
from dataplane.fabric.live.stats import read_stats
from dataplane.fabric.live.values import PaceCounters
from dataplane.load.values import Overload
from dataplane.local.deadline import local_timeout
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.channels import open_aio_channel
from dataplane.rpc.options import client_options

ANSWER_S: Final = 3.0
"""Time limit for a daemon's answer; extended on a busy machine."""
_SERVING_S: Final = 2.0
"""The same limit for each switch of a fabric; a switch that does not answer is reported by name."""
_OLDEST_STATS_S: Final = 4.0
MOST_LATE: Final = 0.05
"""Share of events more than 20 ms late in the last ten seconds, beyond which a virtual fabric is not healthy: its
outside observers, collector and controllers, see delays that are not the network's."""
_WAIT_NS: Final = 500_000_000
_AT_A_TIME: Final = 32

_SAMPLE: Final = re.compile(r"^millrace_(?:scheduler|placement|balance)_(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)

_OVERLOAD: Final = re.compile(r"millrace_[a-z]+_overload_seconds\{")

Check = Callable[[], Awaitable[Health]]


def checks_of(plan: UpPlan, ready_line: Callable[[str], str | None]) -> Mapping[str, Check]:
    """Return each daemon's health check by name; `ready_line` is its last ready line."""
    settings = plan.settings
    return {
        "fabric": lambda: check_fabric(plan.stats_file, plan.switches, settings.tls),
        "collector": lambda: check_collector(settings.address("collector"), settings.tls),
        "paths": lambda: check_paths(settings.address("paths"), settings.tls),
        "controller": lambda: check_controller(settings.address("controller"), settings.tls),
        "api": lambda: check_api(settings.address("api")),
        "scheduler": lambda: check_scheduler(ready_line("scheduler")),
        "placement": lambda: check_placement(ready_line("placement")),
        "balance": lambda: check_balance(ready_line("balance")),
        **{f"node-{name}": partial(check_node, settings.address("api"), name) for name in settings.nodes},
        **{
            f"drive-{unit}": partial(check_drive, ready_line, f"drive-{unit}")
            for node in settings.nodes.values()
            for unit in node.drives
        },
        **{f"centre-{name}": partial(check_centre, settings.address("api"), name) for name in settings.centres},
    }


async def asked(name: str, check: Check) -> Health:
    """Return a daemon's answer; a failure to answer is a result, too."""
    try:
        async with local_timeout(ANSWER_S, name):
            return await check()
    except TimeoutError:
        return Health(ok=False, text=f"no answer within {ANSWER_S:g} s")
    except MillraceError as error:
        return Health(ok=False, text=str(error))


async def check_fabric(stats_file: Path | None, switches: Mapping[str, str], tls: TlsSettings | None = None) -> Health:
    """Return whether the fabric moves and each switch serves."""
    if stats_file is None:
        return Health(ok=False, text="no fabric started here")
    stats = read_stats(stats_file)
    age_s = (time.monotonic_ns() - stats.time_ns) / NS_PER_S
    serving = await serving_switches(switches, tls)
    missing = [name for name in switches if name not in serving]
    traffic, pace, reports = stats.traffic, stats.pace, stats.reports
    late = describe_late(pace)
    parts = [
        f"{len(serving)} of {len(switches)} switches serve",
        *([f"missing: {', '.join(missing[:5])}"] if missing else []),
        *([f"counters {age_s:.0f} s old"] if age_s > _OLDEST_STATS_S else []),
        f"{traffic.sent} packets sent, {traffic.received} received, {reports.forwarded} reports",
        *([f"{stats.restarts} switches restarted"] if stats.restarts else []),
        *([late] if late else []),
        *([f"{traffic.skipped} packets skipped"] if traffic.skipped else []),
        *([f"{traffic.refused} packets found a full uplink"] if traffic.refused else []),
        *([f"{reports.refused} reports lost"] if reports.refused else []),
        *([f"{reports.forged} forged reports dropped"] if reports.forged else []),
    ]
    is_ok = not missing and age_s <= _OLDEST_STATS_S and late_share(pace) <= MOST_LATE
    return Health(ok=is_ok, text="; ".join(parts))


def late_share(pace: PaceCounters) -> float:
    """Return the share of late events in the last seconds."""
    return pace.recent_late_events / max(pace.recent_events, 1)


def describe_late(pace: PaceCounters) -> str:
    """Describe late events: their share now, and whether it is too large; '' if there never was one."""
    if not pace.late_events:
        return ""
    share = late_share(pace)
    now = f"{100 * share:.2g} % of events late" if share else "no event late now"
    limit = (
        f", more than {100 * MOST_LATE:g} %: this machine is too slow or too busy for it" if share > MOST_LATE else ""
    )
    return f"{now}{limit} ({pace.late_events} of {pace.events} since its start)"


async def serving_switches(switches: Mapping[str, str], tls: TlsSettings | None = None) -> set[str]:
    """Return the switches that answer and report that they serve P4Runtime."""
    turns = asyncio.Semaphore(_AT_A_TIME)

    async def serves(name: str) -> str | None:
        async with turns:
            return name if await is_serving(switches[name], tls) else None

    return {name for name in await asyncio.gather(*map(serves, switches)) if name is not None}


async def is_serving(address: str, tls: TlsSettings | None = None) -> bool:
    """Return whether a gRPC server reports that it serves; without health checks, whether it answers at all."""
    async with open_aio_channel(address, tls, client_options(_WAIT_NS)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            async with local_timeout(_SERVING_S, address):
                answer = await stub.Check(health_pb2.HealthCheckRequest())
        except TimeoutError:
            return False
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def check_collector(address: str, tls: TlsSettings | None = None) -> Health:
    """Return whether the feed has a snapshot, and the age of its link data."""
    async with FeedClient(FeedClientSettings(address=address, tls=tls, longest_wait_ns=_WAIT_NS)) as client:
        snapshots = client.snapshots(1_000_000_000)
        try:
            snapshot = await anext(snapshots)
        finally:
            await snapshots.aclose()
        status = await client.status()
    ages = [link.age_ns for link in snapshot.links.values() if link.age_ns is not None]
    received = sum(state.received for state in snapshot.reporters.values())
    newest = f", the newest {min(ages) / 1e9:.1f} s ago" if ages else ""
    text = f"{received} reports, {len(ages)} of {len(snapshot.links)} links measured{newest}"
    return Health(ok=True, text="; ".join([text, *map(str, status.load.overloads)]))


async def check_paths(address: str, tls: TlsSettings | None = None) -> Health:
    """Return whether the path server has a state to decide on."""
    async with RouteClient(RouteClientSettings(address=address, tls=tls, longest_wait_ns=_WAIT_NS)) as client:
        status = await client.status()
    overloads = list(map(str, status.load.overloads))
    if status.feed_is_silent or status.snapshot_age_ns is None:
        problem = status.last_problem or "no network state from the collector"
        return Health(ok=False, text="; ".join([problem, *overloads]))
    text = f"routes version {status.version}, {status.flows} flows, state {status.snapshot_age_ns / NS_PER_S:.1f} s old"
    return Health(ok=True, text="; ".join([text, *overloads]))


async def check_controller(address: str, tls: TlsSettings | None = None) -> Health:
    """Return whether every switch is reconciled."""
    async with ControllerClient(ControllerClientSettings(address=address, tls=tls)) as client:
        status = await client.status()
    parts = [f"{len(status.live)} of {status.switches} switches reconciled"]
    if status.wanted_version is not None:
        parts.append(f"routes version {status.wanted_version}")
    if status.problems:
        parts.append(f"{status.problems[0].switch}: {status.problems[0].problem}")
    if status.source_problem is not None:
        parts.append(status.source_problem)
    parts += map(str, status.load.overloads)
    is_right = len(status.live) == status.switches and status.source_problem is None
    return Health(ok=is_right and status.wanted_version is not None, text="; ".join(parts))


async def check_api(address: str) -> Health:
    """Return whether the API server can answer and write."""
    from httpx import AsyncClient, AsyncHTTPTransport, HTTPError  # noqa: PLC0415 - takes a while to load

    transport = AsyncHTTPTransport(uds=address.removeprefix("unix:").removeprefix("//"))
    async with AsyncClient(transport=transport, base_url="http://api") as client:
        try:
            answer = await client.get("/readyz", timeout=None)
        except HTTPError as error:
            return Health(ok=False, text=f"{address}: {error or type(error).__name__}")
    if answer.status_code not in (200, 503):
        return Health(ok=False, text=f"/readyz answers {answer.status_code}")
    ready = msgspec.json.decode(answer.content, type=_ReadyAnswer)
    text = f"storage {ready.storage}, revision {ready.revision}"
    return Health(ok=answer.status_code == 200, text="; ".join([text, *ready.overloads]))


async def check_scheduler(ready_line: str | None) -> Health:
    """Return whether the scheduler answers, and its number of decisions."""
    text = await _scrape(ready_line)
    if isinstance(text, Health):
        return text
    decisions, waiting, failures = _totals(text, ("decisions_total", "waiting", "failures_total"))
    summary = f"{decisions} decisions, {waiting} pods wait, {failures} failures"
    return Health(ok=True, text="; ".join([summary, *_overloads(text)]))


async def check_placement(ready_line: str | None) -> Health:
    """Return whether the workload controller answers, its counts of objects, and how many nodes are silent."""
    metrics = await _scrape(ready_line)
    if isinstance(metrics, Health):
        return metrics
    names = ("groups", "pods", "nodes", "silent_nodes", "stuck_pods", "failures_total")
    groups, pods, nodes, silent, stuck, failures = _totals(metrics, names)
    text = f"{groups} groups, {pods} pods, {nodes} nodes, {silent} of them silent, {failures} failures"
    return Health(ok=True, text=f"{text}, {stuck} pods do not stop" if stuck else text)


async def check_balance(ready_line: str | None) -> Health:
    """Return whether the management service answers, its counts, and how many holders are silent."""
    metrics = await _scrape(ready_line)
    if isinstance(metrics, Health):
        return metrics
    names = ("pools", "units", "silent_holders", "moved_units_total", "failures_total")
    pools, units, silent, moved, failures = _totals(metrics, names)
    text = f"{pools} pools, {units} units held, {moved} moved, {failures} failures"
    return Health(ok=True, text=f"{text}, {silent} holders are silent" if silent else text)


async def _scrape(ready_line: str | None) -> str | Health:
    """Return a daemon's metrics, or the problem if they are unavailable."""
    from httpx import AsyncClient, HTTPError  # noqa: PLC0415

    url = metrics_address(ready_line)
    if url is None:
        return Health(ok=False, text="serves no metrics")
    async with AsyncClient() as client:
        try:
            answer = (await client.get(url, timeout=None)).raise_for_status()
        except HTTPError as error:
            return Health(ok=False, text=f"{url}: {error or type(error).__name__}")
    return answer.text


def _totals(text: str, names: Sequence[str]) -> list[int]:
    """Return the sums of metrics of these names."""
    totals = dict.fromkeys(names, 0.0)
    for name, value in _SAMPLE.findall(text):
        if name in totals:
            totals[name] += float(value)
    return [int(total) for total in totals.values()]


def _overloads(text: str) -> Iterator[str]:
    """Yield a daemon's overloads, from its metrics."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - rarely needed

    # The parser takes a while for all of them.
    lines = [line for line in text.splitlines() if _OVERLOAD.match(line)]
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            yield str(Overload(sample.labels["cause"], sample.labels["advice"], round(sample.value * 1e9)))


async def check_node(api: str, name: str) -> Health:
    """Return whether a node accepts pods, by its last report."""
    from controller.apiserver.client import ApiClient, Place  # noqa: PLC0415 - takes a while to load
    from controller.apiserver.resources import Node  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    async with ApiClient(Place(api), tries=1) as client:
        try:
            node = await client.of(Node).get(name)
        except NotFoundError:
            return Health(ok=False, text="has not reported yet")
    status = node.status
    held = f"{len(node.shares)} pods, {status.runtime}"
    return Health(ok=status.ready, text=held if status.ready else f"not ready: {status.reason}; {held}")


async def check_drive(ready_line: Callable[[str], str | None], name: str) -> Health:
    """Return a unit's ready line: the loop has no address to ask, and ends if it can go on no longer."""
    _, _, text = (ready_line(name) or "").partition("ready: ")
    return Health(ok=bool(text), text=text or "is not ready")


async def check_centre(api: str, name: str) -> Health:
    """Return whether a centre accepts tasks, by its last report."""
    from controller.apiserver.client import ApiClient, Place  # noqa: PLC0415 - takes a while to load
    from controller.apiserver.resources import Centre  # noqa: PLC0415
    from controller.common.errors import NotFoundError  # noqa: PLC0415

    async with ApiClient(Place(api), tries=1) as client:
        try:
            centre = await client.of(Centre).get(name)
        except NotFoundError:
            return Health(ok=False, text="has not reported yet")
    status = centre.status
    units = ", ".join(f"{unit.count} {unit.name}" for unit in status.units) or "no units"
    held = f"{len(centre.shares)} tasks, {units}, engine {status.engine}"
    return Health(ok=status.ready, text=held if status.ready else f"not ready: {status.reason}; {held}")


class _ReadyAnswer(msgspec.Struct):
    """Fields of /readyz that are evaluated."""

    storage: str
    revision: int
    overloads: tuple[str, ...] = ()
