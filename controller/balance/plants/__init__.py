"""Models of units for tests and what-if analysis: bus, queue, cores and power; the closed loop in virtual time."""

from __future__ import annotations

from controller.balance.plants.formulas import Rest, rest_at
from controller.balance.plants.loop import Keep, Member, Pace, Trajectory, run
from controller.balance.plants.plant import HEAVY, LIGHT, Application, Plant, PlantState
from controller.balance.plants.power import Power

__all__ = [
    "HEAVY",
    "LIGHT",
    "Application",
    "Keep",
    "Member",
    "Pace",
    "Plant",
    "PlantState",
    "Power",
    "Rest",
    "Trajectory",
    "rest_at",
    "run",
]
