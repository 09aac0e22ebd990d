"""What the workload controller does: pure functions over what it knows and the time."""

from controller.workloads.placement.deciding.reconcile import reconcile

__all__ = ["reconcile"]
