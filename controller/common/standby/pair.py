"""The skeleton of a daemon in a pair: serve as standby, become active with the lease, start over when it is lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from controller.common.errors import LostLeaseError, StorageError
from controller.common.standby.lease import RENEWALS, Lease
from controller.common.standby.settings import StandbySettings
from dataplane.clock import NS_PER_S
from dataplane.leases.opening import open_leases

_LOOKS: Final = 20
"""Looks of a standby at the lease within its duration, and attempts of a holder whose renewal failed."""
_ATTENTION_S: Final = 0.02
"""Interval at which tasks look whether the role of the process has changed."""

Serve = Callable[[Lease | None, asyncio.Event], Awaitable[None]]
"""Serves until the event is set: with a lease as standby until it is held, then as the active one. Without: alone."""


MayDecide = Callable[[], Awaitable[None]]
"""Returns once a daemon may decide: at once, or of a pair when it is active."""


@dataclass(frozen=True, slots=True)
class Member:
    """A daemon of a pair: its kind, which by default names the lease, the address that clients know, and its log."""

    daemon: str
    address: str
    log: logging.Logger


async def serve_in_pair(settings: StandbySettings | None, member: Member, serve: Serve, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; raise StorageError if the lease's storage cannot be opened.

    Each time the lease is lost, `serve` is called anew, as after a restart of the process: nothing that the daemon
    believed while it was active is kept.
    """
    if settings is None:
        await serve(None, stop)
        return
    timeout_s = settings.lease_ns / RENEWALS / NS_PER_S
    with await asyncio.to_thread(open_leases, settings.sqlite, settings.etcd, timeout_s, StorageError) as storage:
        while not stop.is_set():
            lease = Lease(
                storage,
                settings.name or member.daemon,
                holder=settings.holder,
                address=member.address,
                lease_ns=settings.lease_ns,
            )
            async with _kept(lease, settings.lease_ns) as check, _ended(lease, check, member.log, stop) as ended:
                # Whoever is fenced off while it stops ends for the same reason.
                with suppress(LostLeaseError):
                    await serve(lease, ended)


def ready_once(ready: Callable[[str], None]) -> Callable[[str], None]:
    """Return what tells that a daemon is ready the first time, and nothing when it starts over."""
    told = False

    def once(line: str) -> None:
        nonlocal told
        if not told:
            told = True
            ready(line)

    return once


async def until_active(lease: Lease | None) -> None:
    """Become a candidate, and return once this process is the active one; at once without a lease."""
    if lease is not None:
        lease.stand()
    while lease is not None and lease.token is None:
        await asyncio.sleep(_ATTENTION_S)


async def at_once() -> None:
    """Let a daemon that runs alone decide."""


async def until_over(lease: Lease) -> None:
    """Return once a lease that was held no longer is."""
    while not lease.is_over:
        await asyncio.sleep(_ATTENTION_S)


@asynccontextmanager
async def _kept(lease: Lease, lease_ns: int) -> AsyncIterator[Callable[[], None]]:
    """Take and renew a lease in a thread, which a busy event loop does not delay; give it back at the end.

    Yield what raises the error that has ended the thread, if one has.
    """
    end = threading.Event()
    failures = list[Exception]()
    look_s = lease_ns / _LOOKS / NS_PER_S

    def keep() -> None:
        try:
            while not end.is_set():
                lease.step()
                status = lease.status()
                end.wait(lease.interval_ns / NS_PER_S if status.is_active and not status.problem else look_s)
        except Exception as error:  # noqa: BLE001 - raised again where it ends the daemon
            failures.append(error)

    def check() -> None:
        if failures:
            raise failures[0]

    thread = threading.Thread(target=keep, name="lease", daemon=True)
    thread.start()
    try:
        yield check
    finally:
        end.set()
        await asyncio.to_thread(thread.join)
        await asyncio.to_thread(lease.release)


@asynccontextmanager
async def _ended(
    lease: Lease, check: Callable[[], None], log: logging.Logger, stop: asyncio.Event
) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the daemon must stop or start over, and log the changes of its role.

    Raise what `check` raises: a standby whose lease nobody looks at would never take over.
    """
    ended = asyncio.Event()

    async def follow() -> None:
        told = ""
        try:
            while not stop.is_set():
                line = _line(lease)
                if line != told:
                    log.warning("%s", told := line)
                if lease.is_over:
                    break
                check()
                await asyncio.sleep(_ATTENTION_S)
        finally:
            ended.set()  # also where this fails, or nobody would hear of a lost lease

    following = asyncio.create_task(follow(), name="follow the lease")
    try:
        yield ended
    finally:
        following.cancel()
        await asyncio.wait([following])
        if not following.cancelled():
            following.result()


def _line(lease: Lease) -> str:
    status = lease.status()
    if lease.is_over:
        return f"lease {lease.name}: lost, starting over as standby" + (f": {status.problem}" * bool(status.problem))
    if status.is_active:
        return f"lease {lease.name}: active as {status.holder}, token {status.token}"
    if status.problem:
        return f"lease {lease.name}: standing by as {status.holder}: {status.problem}"
    if not status.active_holder:
        return f"lease {lease.name}: standing by as {status.holder}"
    where = f" at {status.active_address}" if status.active_address else ""
    return f"lease {lease.name}: standing by as {status.holder}: {status.active_holder}{where} is active"
