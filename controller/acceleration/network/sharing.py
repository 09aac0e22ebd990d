"""Duration of equal flows that begin together: each link is shared fairly (max-min) until the last flow ends.

The fast twin of `reference`. Fair shares by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all
flows grow equally until a link is full, which fixes its flows; when flows end, the shares of the rest are recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_ALIKE: Final = 1e-9
"""Figures that differ by less than this share are equal: rounding must not trigger a recomputation."""


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Flows and the links that they cross, one row each: `flow`, `link`, and the `share` of the flow on it.

    Shares are in (0, 1]; a flow over several paths has several rows. Flows are numbered from 0 to `flows` - 1.
    """

    flows: int
    flow: Ids
    link: Ids
    share: Floats


def finishing_s(crossings: Crossings, free_bps: Floats, size_bits: float | Floats) -> Floats:
    """Return the end of each flow (s) if all begin at 0 with this much to send, or each with its own size.

    `free_bps`, by link, is above 0. A flow that crosses no link ends at once.
    """
    left = np.array(np.broadcast_to(np.asarray(size_bits, np.float64), crossings.flows))
    ends = np.zeros(crossings.flows)
    active = np.zeros(crossings.flows, np.bool_)
    active[crossings.flow] = left[crossings.flow] > 0
    now_s = 0.0
    while active.any():
        rates = fair_bps(crossings, free_bps, active)
        lasting = np.full(crossings.flows, np.inf)
        np.divide(left, rates, out=lasting, where=active)
        step_s = float(lasting.min())
        now_s += step_s
        done = active & (lasting <= step_s * (1 + _ALIKE))
        left = np.where(active, left - rates * step_s, left)
        ends[done] = now_s
        active &= ~done
    return ends


def fair_bps(crossings: Crossings, free_bps: Floats, active: Flags) -> Floats:
    """Return the max-min fair rate of each active flow (bit/s), 0 for the others."""
    rates = np.zeros(crossings.flows)
    growing = active.copy()
    left = free_bps.astype(np.float64)
    level = 0.0
    while growing.any():
        wanted = np.where(growing[crossings.flow], crossings.share, 0.0)
        demand = np.bincount(crossings.link, wanted, minlength=len(left))
        room = np.full(len(left), np.inf)
        np.divide(left, demand, out=room, where=demand > 0)
        step = float(room.min())
        level += step
        full = room <= step * (1 + _ALIKE) + level * _ALIKE
        left = np.maximum(left - step * demand, 0.0)
        stopped = np.zeros(crossings.flows, np.bool_)
        stopped[crossings.flow[full[crossings.link] & (wanted > 0)]] = True
        rates[stopped] = level
        growing &= ~stopped
    return rates
