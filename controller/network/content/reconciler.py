"""Names that switches record, on behalf of callers: a requested name is in place when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from controller.common.errors import ControllerError
from controller.network.content.settings import RecordedSettings
from controller.network.content.stores import Stores
from controller.network.content.switch_store import SwitchStore
from dataplane.store.names import digest


class StoreReconciler:
    """The store of a running controller's fabric; use it on its event loop."""

    def __init__(self, stores: Stores, sync: Callable[[Iterable[str]], None]) -> None:
        """`sync` brings switches to the desired state, and calls `confirmed` once they are there."""
        self._stores, self._sync = stores, sync
        self._problems = {node.name: "not connected yet" for node in stores.topology.switches}
        self._progress = asyncio.Event()

    def store(self, switch: str) -> SwitchStore:
        """Return a switch's store as far as known."""
        return self._stores[switch]

    def problem(self, switch: str) -> str:
        """Return why a switch is not reconciled, '' if it is."""
        return self._problems[switch]

    def changed(self, switch: str, problem: str) -> None:
        """Note that a switch is reconciled, or why it is not."""
        self._problems[switch] = problem
        self._progress.set()
        self._progress = asyncio.Event()

    async def record(self, wanted: RecordedSettings, *, deadline_s: float = 10.0) -> None:
        """Return when the server's switch records a name; raise ControllerError, and drop the request, if it does not.

        The request does not survive a restart of the controller: the caller must repeat it.
        """
        switch = self._stores.switch_of(wanted)
        self._stores.record(wanted)
        self._sync((switch,))
        try:
            async with asyncio.timeout(deadline_s):
                while self._problems[switch] or not self._stores[switch].is_recorded(digest(wanted.name)):
                    await self._progress.wait()
        except TimeoutError:
            self.forget(wanted)
            cause = self.problem(switch) or "no answer"
            raise ControllerError(f"{wanted.name}: {switch} not written within {deadline_s:g} s: {cause}") from None

    def forget(self, wanted: RecordedSettings) -> None:
        """Stop recording a name."""
        self._stores.forget(wanted)
        self._sync((self._stores.switch_of(wanted),))
