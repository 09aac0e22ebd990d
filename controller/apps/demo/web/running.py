"""`millrace demo --web`: the run in virtual time, in the operators' page, at the pace of the clock.

The run is stepped in the server's event loop, so that nothing is shared between threads.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from collectors.history.files import TOPOLOGY_FILE
from collectors.history.recorder import HistoryRecorder
from collectors.history.settings import HistorySettings
from controller.apiserver.settings import ViewSettings
from controller.apiserver.view.state import NetworkView
from controller.apps.demo.outcome import Outcome
from controller.apps.demo.virtual import VirtualRun
from controller.apps.page import page_of
from controller.network.paths.service.move_reports import move_of
from dataplane.clock import NS_PER_MS, NS_PER_S
from dataplane.errors import MillraceError
from dataplane.running import stop_on_signals

_STEP_NS: Final = 100 * NS_PER_MS
_SHOWN_NS: Final = 500 * NS_PER_MS
_POLL_S: Final = 0.1

Say = Callable[[str], None]


def run_in_page(run: VirtualRun, history: Path, say: Say, show: Callable[[Outcome], None]) -> Outcome:
    """Run when a browser has opened the page, `show` the outcome, and serve until a signal.

    `history` is replaced by the run's own, which `millrace view` opens later. Raises MillraceError in one line, also if
    a signal comes before the end.
    """
    return asyncio.run(_InPage(run, history, say, show).run())


class _InPage:
    def __init__(self, run: VirtualRun, history: Path, say: Say, show: Callable[[Outcome], None]) -> None:
        self._run, self._folder, self._say, self._show = run, history, say, show
        self._view: NetworkView | None = None
        if history.is_dir() and (history / TOPOLOGY_FILE).is_file():
            shutil.rmtree(history)
        topology = run.scenario.topology
        self._history = HistoryRecorder(
            run.collector, topology, HistorySettings(folder=str(history)), time.time_ns, say
        )
        self._taken = 0

    async def run(self) -> Outcome:
        stop = stop_on_signals()
        view = ViewSettings(topology=str(self._folder / TOPOLOGY_FILE), network_state=None, history=str(self._folder))
        outcome: Outcome | None = None
        self._run.start()  # loads the switches' programs, which takes a while; its time stands still
        try:
            async with page_of(view, 0, self._follow) as address:
                self._say(f"open {address} within a minute: the run begins when the page is open; Ctrl-C ends it")
                running = asyncio.create_task(self._paced())
                stopping = asyncio.create_task(stop.wait())
                await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    outcome = running.result()
                    self._say_ended()
                    await asyncio.to_thread(self._show, outcome)
                    self._say(f"the page stays until Ctrl-C; later: millrace view {self._folder}")
                running.cancel()
                await stopping
        finally:
            self._history.close()
        if outcome is None:
            raise MillraceError("stopped before the run had ended")
        return outcome

    @asynccontextmanager
    async def _follow(
        self, view: NetworkView, _settings: ViewSettings, _now_ns: Callable[[], int]
    ) -> AsyncIterator[None]:
        """Show the run in a view while the block lasts; there is no path server to ask."""
        self._view = view
        yield None

    async def _paced(self) -> Outcome:
        run, view, loop = self._run, self._view, asyncio.get_running_loop()
        assert view is not None, "the page has no network"
        while view.viewers() == 0:
            await asyncio.sleep(_POLL_S)
        began_s = loop.time()
        for at_ns in range(_STEP_NS, run.scenario.end_ns + _STEP_NS, _STEP_NS):
            run.fabric.run_until(min(at_ns, run.scenario.end_ns))
            if at_ns % _SHOWN_NS == 0:
                view.take_snapshot(run.collector.snapshot())
                self._show_moves(view)
            if at_ns % NS_PER_S == 0:
                self._history.record()
            await asyncio.sleep(max(0.0, began_s + at_ns / NS_PER_S - loop.time()))
        return run.outcome()

    def _say_ended(self) -> None:
        """Tell the page why nothing new comes."""
        assert self._view is not None, "the page has no network"
        for source in self._view.sources():
            self._view.note_problem(source.name, "the run has ended: the time bar looks back on it")

    def _show_moves(self, view: NetworkView) -> None:
        """Show new moves at the time of day at which they come up; the run's own time begins at zero."""
        moves = [replace(move_of(decision), time_ns=time.time_ns()) for decision in self._run.decisions[self._taken :]]
        for move in moves:
            view.take_move(move)
        self._history.add_moves(moves)
        self._taken = len(self._run.decisions)
