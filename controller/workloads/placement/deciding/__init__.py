"""Decisions of the workload controller: pure functions of its view and the time."""

from controller.workloads.placement.deciding.reconcile import reconcile

__all__ = ["reconcile"]
