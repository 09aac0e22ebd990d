"""The supervisor: starts every daemon of a plan, keeps them running, reports on them, stops them in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.apps.up.control import Answer, Question, prepare_run, serving
from controller.apps.up.daemon_plans import DaemonPlan
from controller.apps.up.errors import UpError
from controller.apps.up.plan import UpPlan, settings_file, write_generated
from controller.apps.up.remains import remove_remains
from controller.apps.up.supervision.changes import Changes, changes
from controller.apps.up.supervision.daemon import Daemon
from controller.apps.up.supervision.lines import DaemonLog, Say
from controller.apps.up.values import DaemonState, Health, State, UpState, metrics_address
from dataplane.config import Strict
from dataplane.config.suggestions import did_you_mean
from dataplane.daemon.notify import notify
from dataplane.errors import MillraceError
from dataplane.local.deadline import local_timeout
from dataplane.running import until_first_ends

if TYPE_CHECKING:
    from controller.apps.up.health import Check

SUPERVISOR: Final = "up"
RESTART_S: Final = 180.0
"""Time that a restarted daemon has to get ready; a kernel fabric starts a process for each switch."""
_MOST_INCIDENTS: Final = 8
_TRIES: Final = 3
"""Number of exits before ever being ready after which a daemon is given up."""


@dataclass(slots=True)
class _Unit:
    """A daemon under the supervisor."""

    planned: DaemonPlan
    daemon: Daemon
    log: DaemonLog
    running: asyncio.Task[None]


class Supervisor:
    """Runs a plan until SIGTERM, SIGINT or `millrace down`; construct and use it inside a running event loop."""

    def __init__(self, plan: UpPlan, say: Say, *, reload: Callable[[], UpPlan]) -> None:
        """Print lines with `say`; `reload` reads the settings again."""
        self._plan, self._reload, self._say = plan, reload, say
        self._changed, self._stop, self._hung_up = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._failure: UpError | None = None
        self._checks: Mapping[str, Check] = {}
        self._units = dict[str, _Unit]()
        self._in_force = dict[str, Strict]()
        """Settings of each daemon's process."""
        self._changing = asyncio.Lock()
        self._log = self._open_log(SUPERVISOR)

    async def run(self, on_ready: Callable[[UpState], None]) -> None:
        """Run until stopped; `on_ready` gets the state once every daemon is ready. Raises UpError if one cannot run."""
        socket = prepare_run(self._socket_folder)
        write_generated(self._plan)
        self._follow_signals()
        with closing(self._log):
            for line in self._plan.notes:
                self._log.write(line)
            async with serving(socket, self._answer):
                for planned in self._plan.daemons:
                    self._units[planned.name] = self._start(planned)
                self._load_checks()
                reloading = asyncio.create_task(self._reload_at_hangups())
                reloading.add_done_callback(lambda _: self._stop_now())  # its failure is a bug: `_end` raises it
                try:
                    await self._until_ready()
                    if not self._stop.is_set():
                        on_ready(await self.state())
                        notify("READY=1")
                    await self._stop.wait()
                finally:
                    notify("STOPPING=1")
                    await self._end(reloading)
                    # Before the socket closes, which is what `millrace down` waits for.
                    remove_remains(self._socket_folder)

    async def state(self) -> UpState:
        """Return the current state of every daemon."""
        units = tuple(self._units.values())
        healths = await asyncio.gather(*(self._health(unit.daemon) for unit in units))
        settings = self._plan.settings
        return UpState(
            topology=self._plan.topology.name,
            fabric="joined" if settings.switches else str(settings.time),
            folder=str(self._plan.state.path),
            pid=os.getpid(),
            daemons=tuple(_state(unit, health) for unit, health in zip(units, healths, strict=True)),
        )

    async def reload(self) -> None:
        """Apply the settings as they are now: start, stop and reload daemons, and log what cannot change.

        Raises MillraceError and changes nothing if they are wrong.
        """
        async with self._changing:
            new = await asyncio.to_thread(self._reload)
            made = await asyncio.to_thread(changes, self._plan, new, dict(self._in_force))
            write_generated(made.plan)
            for line in (*made.plan.notes, *made.lines()):
                self._log.write(line)
            if not self._stop.is_set():
                await self._apply(made)

    async def restart(self, name: str) -> float:
        """Restart a daemon, and return the seconds until it was ready again; raise UpError."""
        if name not in self._units:
            raise UpError(f"there is no daemon {name!r}{did_you_mean(name, self._units)}")
        try:
            async with local_timeout(RESTART_S, f"the restart of {name}"):
                return await self._units[name].daemon.restarted()
        except TimeoutError:
            raise UpError(
                f"the {name} is not ready {RESTART_S:g} s after its restart; `millrace logs {name}`"
            ) from None

    async def _apply(self, made: Changes) -> None:
        self._plan = made.plan
        self._load_checks()
        ending = [self._units.pop(name) for name in made.removed]
        for planned in made.plan.daemons:
            unit = self._units.get(planned.name)
            if unit is None:
                self._units[planned.name] = self._start(planned)
                continue
            unit.planned = planned
            if planned.name in made.restarted:
                await unit.daemon.restart()
            elif planned.reloads is not None:
                unit.daemon.hang_up()
        self._units = {planned.name: self._units[planned.name] for planned in made.plan.daemons}
        await stop_in_order([unit.daemon for unit in ending], {unit.planned.name: unit.planned.asks for unit in ending})
        for unit in ending:
            await unit.running
            unit.log.close()
            settings_file(self._plan.state, unit.planned.name).unlink(missing_ok=True)
            self._log.write(f"{unit.planned.name}: stopped")

    async def _reload_at_hangups(self) -> None:
        while True:
            await self._hung_up.wait()
            self._hung_up.clear()
            try:
                await self.reload()
            except MillraceError as error:
                self._log.write(f"reload failed, keeping the previous settings: {error}")

    def _start(self, planned: DaemonPlan) -> _Unit:
        log = self._open_log(planned.name)
        daemon = Daemon(
            planned.name,
            (*planned.words, "--settings", str(settings_file(self._plan.state, planned.name))),
            log,
            self._plan.settings.restart,
            on_change=self._changed.set,
            up_log=self._log,
            on_start=lambda: self._note_settings(planned.name),
            environ=planned.environ,
        )
        return _Unit(planned, daemon, log, asyncio.create_task(self._keep(daemon, planned)))

    def _note_settings(self, name: str) -> None:
        """Remember what a process that starts now reads."""
        settings = {planned.name: planned.settings for planned in self._plan.daemons}
        if name in settings:  # else it was removed, and ends
            self._in_force[name] = settings[name]

    @property
    def _socket_folder(self) -> Path:
        return Path(self._plan.settings.run)

    def _open_log(self, name: str) -> DaemonLog:
        return DaemonLog(name, self._plan.state.logs, self._plan.settings.logs, self._say)

    def _load_checks(self) -> None:
        """Import the health checks, including gRPC, while daemons start."""
        from controller.apps.up.health import checks_of  # noqa: PLC0415

        self._checks = checks_of(self._plan, self._ready_line)

    def _ready_line(self, name: str) -> str | None:
        unit = self._units.get(name)  # a reload may remove it while it is asked
        return None if unit is None else unit.daemon.ready_line

    async def _health(self, daemon: Daemon) -> Health:
        from controller.apps.up.health import asked  # noqa: PLC0415

        check = self._checks.get(daemon.name)
        if daemon.state is not State.READY or check is None:
            return Health(ok=False, text=str(daemon.state))
        return await asked(daemon.name, check)

    async def _until_ready(self) -> None:
        """Return when every daemon was ready once, or on `stop`; raise UpError for one that never will be."""
        while not self._stop.is_set():
            if self._failure is not None:
                raise self._failure
            daemons = [unit.daemon for unit in self._units.values()]
            failed = next((daemon for daemon in daemons if daemon.early_ends >= _TRIES), None)
            if failed is not None:
                raise UpError(f"the {failed.name} cannot run: {failed.last_error}")
            if all(daemon.has_been_ready for daemon in daemons):
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
                await until_first_ends(made, daemon.wait_stopping())
            except MillraceError as error:
                self._failure = UpError(f"the {planned.name} cannot run: {error}")
                self._log.write(str(self._failure))
                self._changed.set()
                return
        await daemon.run()

    async def _end(self, reloading: asyncio.Task[None]) -> None:
        self._stop.set()
        async with self._changing:  # what a reload has begun to stop, it stops
            reloading.cancel()
        await asyncio.wait((reloading,))
        units = self._units.values()
        await stop_in_order([unit.daemon for unit in units], {unit.planned.name: unit.planned.asks for unit in units})
        await asyncio.gather(*(unit.running for unit in units))
        for unit in units:
            unit.log.close()
        if not reloading.cancelled():
            reloading.result()

    def _follow_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop_now)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)

    def _stop_now(self) -> None:
        self._stop.set()
        self._changed.set()

    async def _answer(self, question: Question) -> Answer:
        try:
            match question.ask:
                case "status":
                    return Answer(state=await self.state())
                case "reload":
                    await self.reload()
                case "restart":
                    return Answer(took_s=await self.restart(question.daemon))
                case "down":
                    self._stop_now()
        except MillraceError as error:
            return Answer(error=str(error))
        return Answer()


def _state(unit: _Unit, health: Health) -> DaemonState:
    daemon, incidents = unit.daemon, unit.daemon.incidents
    return DaemonState(
        name=daemon.name,
        state=daemon.state,
        pid=daemon.pid,
        since_s=daemon.since_s,
        restarts=len(incidents),
        last_error=daemon.last_error,
        addresses=_addresses(daemon, unit.planned),
        health=health,
        incidents=incidents[-_MOST_INCIDENTS:],
    )


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
