"""The reported resource configuration: unit types with the kernels that really run there, and its changes.

Kernels are tried at start and whenever a unit type has changed: a job of our own on one free unit of each type runs
each kernel once, in a separate process. A type whose units are all busy has to wait for its trials.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from controller.apiserver.agents.reporting import AGAIN_S
from controller.apiserver.resources.centre import UnitType
from controller.probing.errors import ProbeError
from controller.probing.values import ProbeKernel
from controller.workloads.centres.engines.base import Engine
from controller.workloads.centres.errors import CentreError
from controller.workloads.centres.folder import CentreFolder, Configuration
from controller.workloads.centres.settings import CentreSettings
from controller.workloads.centres.trying.trials import Trials

LOGGER: Final = logging.getLogger("millrace.centre")


class Configurer:
    """Unit types as reported: `types` is None until the first trials are done. `kernels` returns the kernels to try."""

    def __init__(
        self,
        settings: CentreSettings,
        folder: CentreFolder,
        kernels: Callable[[CentreSettings], Awaitable[Sequence[ProbeKernel]]],
    ) -> None:
        self._settings, self._folder, self._kernels = settings, folder, kernels
        self._trials = Trials(settings, folder)
        self._known: dict[str, UnitType] = {}
        """Unit types as they were when tried, by name."""
        self._why: dict[str, tuple[str, ...]] = {}
        """Reasons why kernels do not run there, by unit type."""
        self._tried: tuple[ProbeKernel, ...] = ()
        self._due: set[str] = set()
        """Types to try again because the library has changed; their earlier results count until then."""
        self._kept = folder.configuration()
        self._again = asyncio.Event()
        self._is_new = False
        self.types: tuple[UnitType, ...] | None = None
        self.notes: tuple[str, ...] = ()

    @property
    def asks_for_probe(self) -> bool:
        """True if earlier measurements may no longer hold."""
        return self._kept is not None and self._kept.changed_ns is not None

    @property
    def trials(self) -> frozenset[str]:
        """Names of the pseudo-tasks that our own jobs carry."""
        return self._trials.names

    def reload(self, settings: CentreSettings) -> None:
        """Apply new settings, and try everything again."""
        self._settings = settings
        self._trials = Trials(settings, self._folder)
        self._known.clear()
        self._again.set()

    async def run(self, engine: Engine, on_change: Callable[[], None]) -> None:
        """Follow the engine's resources until cancelled."""
        await self._trials.clear(engine)
        while True:
            self._again.clear()
            try:
                if await self._look(engine):
                    on_change()
            except (CentreError, ProbeError) as error:
                LOGGER.warning("%s", error)
                self.notes = (str(error),)
                on_change()
                await asyncio.sleep(AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.look_s):
                    await self._again.wait()

    def reported(self, server_ns: int) -> None:
        """Note the time of an acknowledged report: a change counts from then."""
        if self.types is None:
            return
        kept = self._kept
        if kept is None or self._is_new:
            changed_ns = None if kept is None else server_ns
            self._keep(Configuration(units=_lasting(self.types), changed_ns=changed_ns))
            self._is_new = False

    def probed(self, created_ns: int) -> None:
        """Note a successful probe and the time of its request: one after the change answers it."""
        if self._kept is not None and self._kept.changed_ns is not None and created_ns >= self._kept.changed_ns:
            self._keep(replace(self._kept, changed_ns=None))

    async def _look(self, engine: Engine) -> bool:
        """Ask the engine for its resources, try new ones; return whether there is anything to report."""
        units, kernels = await engine.resources(), tuple(await self._kernels(self._settings))
        if kernels != self._tried:
            self._tried = kernels
            self._due.update(self._known)
        notes: list[str] = []
        for unit in units:
            tried_unit = self._known.get(unit.name)
            is_new = tried_unit is None or tried_unit.unit != unit.unit or tried_unit.count > unit.count
            if unit.count and (is_new or unit.name in self._due):
                tried = await self._trials.operators_of(engine, unit, kernels)
                if tried is None:
                    notes.append(f"unit type {unit.name}: no unit was free to try its kernels")
                    continue
                self._due.discard(unit.name)
                self._known[unit.name] = replace(unit, operators=tried.operators)
                self._why[unit.name] = tried.notes
            notes += self._why.get(unit.name, ())
        types = tuple(replace(unit, operators=self._operators(unit)) for unit in units)
        is_change = types != self.types or tuple(notes) != self.notes
        if self._kept is not None and _lasting(types) != self._kept.units:
            self._is_new = True
        self.types, self.notes = types, tuple(notes)
        return is_change

    def _operators(self, unit: UnitType) -> tuple[str, ...]:
        tried_unit = self._known.get(unit.name)
        return () if tried_unit is None or not unit.count else tried_unit.operators

    def _keep(self, configuration: Configuration) -> None:
        self._kept = configuration
        try:
            self._folder.keep(configuration)
        except CentreError as error:
            LOGGER.warning("%s", error)


def _lasting(types: Sequence[UnitType]) -> tuple[UnitType, ...]:
    """Return unit types without the parts that vary from hour to hour with others' work."""
    return tuple(replace(unit, free=None) for unit in types)
