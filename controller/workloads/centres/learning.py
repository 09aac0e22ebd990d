"""Learning from SQL tasks: the times of a centre's operators, beside those that a scheduler expects."""

from __future__ import annotations

import threading
from pathlib import Path

from controller.acceleration.calibration.corrections import corrected
from controller.acceleration.running.tasks.values import Way
from controller.apiserver.resources import Task
from controller.apiserver.resources.centre import TimeCorrection, TypeCorrection
from controller.scheduling.tasks.names import type_of
from controller.workloads.centres.folder import CentreFolder
from controller.workloads.centres.outcomes import expected_of, ran_of
from dataplane.topology.values import DeviceKind


class Learner:
    """Corrections of expected times, kept in the agent's state folder."""

    def __init__(self, folder: CentreFolder) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self.corrections = folder.corrections()

    @property
    def report(self) -> tuple[TimeCorrection, ...]:
        """The corrections as the centre reports them."""
        return tuple(TimeCorrection(operator=kind, factor=at) for kind, at in self.corrections.factors.items())

    @property
    def type_report(self) -> tuple[TypeCorrection, ...]:
        """The corrections by type of task, as the centre reports them."""
        return tuple(TypeCorrection(task_type=name, factor=at) for name, at in self.corrections.types.items())

    def learn(self, task: Task, folder: Path) -> bool:
        """Compare a task's time with what was expected; return whether that taught something. Raise CentreError."""
        ran = ran_of(task, folder)
        # Corrections are of DuckDB's times: another device's, or a stand-in's, say nothing about them.
        on_cpu = all(chosen.device is DeviceKind.CPU for chosen in task.status.operator_devices)
        if ran is None or not on_cpu or ran.way is not Way.SPLIT or ran.workers != (task.status.units or 1):
            return False
        with self._lock:
            after = corrected(self.corrections, expected_of(task), ran.seconds, type_of(task))
            if after.version == self.corrections.version:
                return False
            self.corrections = after
            self._folder.keep_corrections(after)
        return True
