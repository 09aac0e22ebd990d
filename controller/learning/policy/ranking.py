"""A network's answer as points and as words."""

from __future__ import annotations

from functools import partial

import numpy as np

from controller.learning.policy.live import Answer, LiveNetwork, Usual
from controller.learning.values import Bools, Floats
from controller.scheduling.framework.policies import MOST_POINTS, Ids, Longs


def points_of(answer: Answer, actions: Ids) -> Longs:
    """Return `MOST_POINTS` for the action with the highest value, 0 for the lowest; all the same without values.

    An action that is tried once, or that stands as the fallback's choice, gets all of them, the others none.
    """
    points = np.full(len(actions), MOST_POINTS, np.int64)
    only = answer.wanted if answer.explored is None else answer.explored
    if only is not None:
        points[actions != only] = 0
    elif answer.values is not None and len(actions):
        values = answer.values[actions]
        if values.max() > values.min():
            points[:] = np.rint(MOST_POINTS * (values - values.min()) / (values.max() - values.min()))
    return points


def usual_of(points: Longs, actions: Ids) -> Usual:
    """Return a function that picks the action with the most points, among equals the one with the highest value."""
    return partial(_usual, points, actions)


def _usual(points: Longs, actions: Ids, values: Floats, among: Bools) -> int:
    possible = among[actions]
    points, actions = points[possible], actions[possible]
    actions = actions[points == points.max()]
    return int(actions[np.argmax(values[actions])])


def reasons_of(network: LiveNetwork, answer: Answer, actions: Ids) -> list[str]:
    """Return values and ranks of all candidates; that of the first one says how often the first was chosen."""
    if answer.values is None:
        tried = " (this one is tried)" if answer.explored is not None else ""
        problem = f"the network is not used: {network.why_not(answer)}"
        return [problem + tried * (action == answer.explored) for action in actions.tolist()]
    possible = answer.values[answer.observation.candidates]
    mode = "in shadow, " if network.settings.shadow else ""
    standing = network.standing
    reasons = []
    for action in actions.tolist():
        rank = 1 + int(np.count_nonzero(possible > answer.values[action]))
        value = f"gives it {answer.values[action]:.4g}, rank {rank} of {len(possible)}"
        text = f"{mode}version {answer.version} {value}"
        if action == answer.explored:
            text += ", tried once"
        if action == answer.usual:
            text += f", and stands as the choice of {network.settings.fallback}"
        elif action == answer.wanted:
            text += f", and is the choice of {network.settings.fallback} among those nearly as good"
        if rank == 1 and standing.compared:
            text += f"; {standing.agreed} of {standing.compared} earlier first choices were taken"
        reasons.append(text)
    return reasons
