"""The supervisor: starts every daemon of a plan, keeps them running, reports on them, stops them in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.apps.up.control import Answer, Question, prepare_run, serving
from controller.apps.up.daemon import Daemon
from controller.apps.up.errors import UpError
from controller.apps.up.lines import DaemonLog, Say
from controller.apps.up.plan import DaemonPlan, UpPlan, settings_file, write_generated
from controller.apps.up.remains import remove_remains
from controller.apps.up.values import DaemonState, Health, State, UpState, metrics_address
from dataplane.daemon.notify import notify
from dataplane.errors import MillraceError
from dataplane.running import until_first_ends

if TYPE_CHECKING:
    from controller.apps.up.health import Check

SUPERVISOR: Final = "up"
_TRIES: Final = 3
"""Number of exits before ever being ready after which a daemon is given up."""


class Supervisor:
    """Runs a plan until SIGTERM, SIGINT or `millrace down`; construct and use it inside a running event loop."""

    def __init__(self, plan: UpPlan, say: Say, *, reload: Callable[[], UpPlan]) -> None:
        """Print lines with `say`; `reload` reads the settings again."""
        self._plan, self._reload = plan, reload
        self._changed, self._stop = asyncio.Event(), asyncio.Event()
        self._failure: UpError | None = None
        self._checks: Mapping[str, Check] = {}
        self._logs = ExitStack()
        self._log = self._open_log(SUPERVISOR, say)
        self._daemons = tuple(
            Daemon(
                daemon.name,
                (*daemon.words, "--settings", str(settings_file(plan.state, daemon.name))),
                self._open_log(daemon.name, say),
                plan.settings.restart,
                on_change=self._changed.set,
                environ=daemon.environ,
            )
            for daemon in plan.daemons
        )

    async def run(self, on_ready: Callable[[UpState], None]) -> None:
        """Run until stopped; `on_ready` gets the state once every daemon is ready. Raises UpError if one cannot run."""
        socket = prepare_run(self._socket_folder)
        write_generated(self._plan)
        self._follow_signals()
        with self._logs:
            async with serving(socket, self._answer):
                plans = zip(self._daemons, self._plan.daemons, strict=True)
                running = [asyncio.create_task(self._keep(daemon, planned)) for daemon, planned in plans]
                self._load_checks()
                try:
                    await self._until_ready()
                    if not self._stop.is_set():
                        on_ready(await self.state())
                        notify("READY=1")
                    await self._stop.wait()
                finally:
                    notify("STOPPING=1")
                    await self._end(running)
                    # Before the socket closes, which is what `millrace down` waits for.
                    remove_remains(self._socket_folder)

    async def state(self) -> UpState:
        """Return the current state of every daemon."""
        healths = await asyncio.gather(*map(self._health, self._daemons))
        settings = self._plan.settings
        return UpState(
            topology=self._plan.topology.name,
            fabric="joined" if settings.switches else str(settings.time),
            folder=str(self._plan.state.path),
            pid=os.getpid(),
            daemons=tuple(
                DaemonState(
                    name=daemon.name,
                    state=daemon.state,
                    pid=daemon.pid,
                    since_s=daemon.since_s,
                    restarts=daemon.restarts,
                    last_error=daemon.last_error,
                    addresses=_addresses(daemon, plan),
                    health=health,
                )
                for daemon, plan, health in zip(self._daemons, self._plan.daemons, healths, strict=True)
            ),
        )

    def hang_up(self) -> None:
        """Read the settings again, and reload the daemons that support it."""
        try:
            plan = self._reload()
            write_generated(plan)
        except MillraceError as error:
            self._log.write(f"reload failed, keeping the previous settings: {error}")
            return
        changed = changed_daemons(self._plan, plan)
        for daemon, planned in zip(self._daemons, self._plan.daemons, strict=True):
            if planned.reloads:
                daemon.signal(signal.SIGHUP)
            elif planned.name in changed:
                self._log.write(f"{planned.name}: its new settings take effect at its next start")
        self._log.write("settings reloaded")

    @property
    def _socket_folder(self) -> Path:
        return Path(self._plan.settings.run)

    def _open_log(self, name: str, say: Say) -> DaemonLog:
        log = DaemonLog(name, self._plan.state.logs, self._plan.settings.logs, say)
        self._logs.callback(log.close)
        return log

    def _load_checks(self) -> None:
        """Import the health checks, including gRPC, while daemons start."""
        from controller.apps.up.health import checks_of  # noqa: PLC0415

        self._checks = checks_of(self._plan, self._ready_line)

    def _ready_line(self, name: str) -> str | None:
        return next(daemon.ready_line for daemon in self._daemons if daemon.name == name)

    async def _health(self, daemon: Daemon) -> Health:
        from controller.apps.up.health import asked  # noqa: PLC0415

        if daemon.state is not State.READY:
            return Health(ok=False, text=str(daemon.state))
        return await asked(daemon.name, self._checks[daemon.name])

    async def _until_ready(self) -> None:
        """Return when every daemon was ready once, or on `stop`; raise UpError for one that never will be."""
        while not self._stop.is_set():
            if self._failure is not None:
                raise self._failure
            failed = next((daemon for daemon in self._daemons if daemon.early_ends >= _TRIES), None)
            if failed is not None:
                raise UpError(f"the {failed.name} cannot run: {failed.last_error}")
            if all(daemon.has_been_ready for daemon in self._daemons):
                return
            # Nothing is awaited between the check and this line, so no change is lost.
            self._changed.clear()
            await self._changed.wait()

    async def _keep(self, daemon: Daemon, planned: DaemonPlan) -> None:
        """Run a daemon, with its token, until it is stopped."""
        if planned.token is not None:
            from controller.apps.up.access import ensure_token  # noqa: PLC0415 - loads the API's client

            api = self._plan.settings.address("api")
            made = ensure_token(planned.token, planned.name, api, planned.role, planned.subject)
            try:
                await until_first_ends(made, _wait(self._stop))
            except MillraceError as error:
                self._failure = UpError(f"the {planned.name} cannot run: {error}")
                self._changed.set()
                return
        if not self._stop.is_set():
            await daemon.run()

    async def _end(self, running: Sequence[asyncio.Task[None]]) -> None:
        self._stop.set()
        await stop_in_order(self._daemons, {plan.name: plan.asks for plan in self._plan.daemons})
        await asyncio.gather(*running)

    def _follow_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_now)
        loop.add_signal_handler(signal.SIGHUP, self.hang_up)

    def _stop_now(self) -> None:
        self._stop.set()
        self._changed.set()

    async def _answer(self, question: Question) -> Answer:
        match question.ask:
            case "status":
                return Answer(state=await self.state())
            case "reload":
                self.hang_up()
            case "down":
                self._stop_now()
        return Answer()


def _addresses(daemon: Daemon, planned: DaemonPlan) -> dict[str, str]:
    """Return all addresses: the planned ones, and chosen ports."""
    metrics = metrics_address(daemon.ready_line)
    return dict(planned.addresses) | ({} if metrics is None else {"metrics": metrics})


async def stop_in_order(daemons: Sequence[Daemon], asks: Mapping[str, Collection[str]]) -> None:
    """Stop daemons, given in start order, each after all that depend on it."""
    ending: dict[str, asyncio.Task[None]] = {}
    for daemon in reversed(daemons):
        askers = [task for name, task in ending.items() if daemon.name in asks[name]]
        ending[daemon.name] = asyncio.create_task(_stop_after(askers, daemon))
    await asyncio.gather(*ending.values())


async def _stop_after(others: Sequence[asyncio.Task[None]], daemon: Daemon) -> None:
    if others:
        await asyncio.wait(others)
    await daemon.stop()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


def changed_daemons(old: UpPlan, new: UpPlan) -> set[str]:
    """Return the daemons whose settings differ between two plans, or that only one of them has."""
    before, after = ({daemon.name: daemon.settings for daemon in plan.daemons} for plan in (old, new))
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
