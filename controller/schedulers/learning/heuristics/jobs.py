"""Rules that choose which of the waiting jobs is next."""

from __future__ import annotations

from controller.schedulers.learning.inputs.ordering import Ordering
from controller.schedulers.learning.values import Observation


class ShortestFirst:
    """The job that is thought to run shortest; of equals the oldest."""

    def choose(self, observation: Observation, view: Ordering) -> int:  # noqa: ARG002 - it looks at jobs alone
        """Return the place of the shortest job."""
        window = view.window
        return min(view.places, key=lambda place: view.estimate_of(window[place]))


class OldestFirst:
    """The job that was submitted first: with backfilling this is EASY, without it first come, first served.

    Lifka, "The ANL/IBM SP scheduling system", 1995.
    """

    def choose(self, observation: Observation, view: Ordering) -> int:  # noqa: ARG002 - it looks at jobs alone
        """Return the place of the oldest job."""
        return view.places[0]
