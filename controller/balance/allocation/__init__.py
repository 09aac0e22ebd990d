"""Allocation of a pool's sub-units to holders: by shadow price, priority and claims; pure."""

from __future__ import annotations

from controller.balance.allocation.allocate import allocate
from controller.balance.allocation.handover import Handover, hand_over
from controller.balance.allocation.values import Allocation, Claimant, Limits, Move, busy_units, within_load

__all__ = ["Allocation", "Claimant", "Handover", "Limits", "Move", "allocate", "busy_units", "hand_over", "within_load"]
