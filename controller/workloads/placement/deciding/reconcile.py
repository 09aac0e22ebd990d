"""One round: all writes due now, from the current view."""

from __future__ import annotations

from controller.workloads.placement.deciding import groups, leftovers, silence
from controller.workloads.placement.settings import PlacementSettings
from controller.workloads.placement.values import Decided, Plan
from controller.workloads.placement.view import View


def reconcile(view: View, now_ns: int, settings: PlacementSettings) -> Decided:
    """Return the steps due; none until all kinds were listed. It changes nothing and has no clock."""
    if not view.is_complete():
        return Decided()
    plan = Plan()
    silent, held = silence.decide(view, now_ns, settings, plan)
    groups.decide(view, now_ns, settings, plan)
    leftovers.decide(view, now_ns, plan)
    stuck = leftovers.stuck(view, silent, now_ns, settings, plan)
    return Decided(tuple(plan.actions), plan.due_ns, tuple(silent), held, tuple(stuck))
