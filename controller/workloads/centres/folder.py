"""The state folder of a centre's agent, and the centre's last reported configuration."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from controller.acceleration.calibration.corrections import Corrections
from controller.apiserver.agents.state_folder import StateFolder
from controller.apiserver.resources.base import TimeNs
from controller.apiserver.resources.centre import UnitType
from controller.workloads.centres.errors import CentreError
from dataplane.config import Strict
from dataplane.malformed import MALFORMED


class Configuration(Strict, frozen=True):
    """The last reported resource configuration, and since when its change calls for a probe."""

    units: Annotated[tuple[UnitType, ...], Meta(max_length=256)] = ()
    changed_ns: TimeNs | None = None
    """By the server's clock; None if no probe is wanted."""


@dataclass(frozen=True, slots=True)
class CentreFolder(StateFolder):
    """Folder of one centre that only its user can enter."""

    kind: ClassVar = "centre"
    holder: ClassVar = "an agent"
    error: ClassVar = CentreError

    @property
    def jobs(self) -> Path:
        """Parent of jobs' folders."""
        return self.path / "jobs"

    @property
    def engine(self) -> Path:
        """The engine's folder."""
        return self.path / "engine"

    @property
    def outputs(self) -> Path:
        """Folder of ended jobs' outputs."""
        return self.path / "outputs"

    def configuration(self) -> Configuration | None:
        """Return the last report; None if there is none."""
        try:
            return msgspec.json.decode((self.path / "configuration.json").read_bytes(), type=Configuration)
        except (OSError, *MALFORMED):
            return None

    def keep(self, configuration: Configuration) -> None:
        """Store a reported configuration; raise CentreError."""
        self._write("configuration.json", configuration)

    def corrections(self) -> Corrections:
        """Return what was learned about the times of operators; nothing if there is nothing readable."""
        try:
            return msgspec.json.decode((self.path / "corrections.json").read_bytes(), type=Corrections)
        except (OSError, *MALFORMED):
            return Corrections()

    def keep_corrections(self, corrections: Corrections) -> None:
        """Store what was learned; raise CentreError."""
        self._write("corrections.json", corrections)

    def _write(self, name: str, value: Configuration | Corrections) -> None:
        part = self.path / f".{name}.part"
        try:
            with part.open("wb") as file:
                file.write(msgspec.json.encode(value))
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path / name)
        except OSError as error:
            raise CentreError(f"state: {part}: {error.strerror or error}") from None
