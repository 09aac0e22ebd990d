"""The linear program over trees: the mixture of each destination's trees that leaves the busiest link most room.

For each destination its trees (columns, each with its loads) have shares that add up to 1; the load of all trees
together on each link is at most U times its rate. U over a scale, plus a little of the delay, is minimised. That is the
master program of Dantzig and Wolfe's decomposition of the multicommodity flow problem, with trees in place of paths.
Only links that may become the busiest have a row; those that a solution overloads are added, and it is solved again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from controller.network.paths.engineering.values import FloatArray, IntArray

_BUSY = 0.75
"""Links with this share of the busiest one's utilisation have a row from the start."""
_MOST_PASSES = 8
_EXACT = 1e-3
"""By this share a link without a row may exceed the maximum of those that have one."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Trees to mix: for each, the row of its destination, its loads by link, and its delay cost."""

    owners: IntArray
    loads: FloatArray
    delay_costs: FloatArray


@dataclass(frozen=True, slots=True)
class Mixture:
    """The share of each tree, and what a unit of load on each link costs in the optimum."""

    shares: FloatArray
    prices: FloatArray


def mixing(
    columns: Columns,
    rates: FloatArray,
    fixed: FloatArray,
    loads: FloatArray,
    *,
    scale: float,
    enough: float,
    limit_s: float | None,
) -> Generator[None, None, Mixture | None]:
    """Return the best mixture, None if it is not found; yield between the programs that this takes.

    Each program is abandoned after `limit_s`. U is not lowered below `enough`. `fixed` is load that stays, `loads` the
    present total: they determine which links may become the busiest.
    """
    utilisation = loads / rates
    has_row = utilisation >= _BUSY * utilisation.max()
    for _ in range(_MOST_PASSES):
        links = np.flatnonzero(has_row)
        mixture = _solve(columns, rates[links], fixed[links], links, scale, enough, limit_s)
        if mixture is None:
            return None
        shares, most, duals = mixture
        utilisation = (shares @ columns.loads + fixed) / rates
        missing = (utilisation > most * (1 + _EXACT)) & ~has_row
        if not missing.any():
            prices = np.zeros(len(rates))
            prices[links] = np.maximum(duals, 0.0)
            return Mixture(shares, prices)
        has_row |= utilisation >= _BUSY * utilisation.max()
        yield
    return None


def _solve(  # noqa: PLR0917 - the program's parts
    columns: Columns,
    rates: FloatArray,
    fixed: FloatArray,
    links: IntArray,
    scale: float,
    enough: float,
    limit_s: float | None,
) -> tuple[FloatArray, float, FloatArray] | None:
    """Return the shares, U and the links' duals, None where there is no optimum within the limit."""
    from scipy import optimize, sparse  # noqa: PLC0415 - scipy takes long to import

    trees, owners = len(columns.owners), int(columns.owners.max()) + 1
    at_most = sparse.hstack(
        [sparse.csr_array(columns.loads[:, links].T), sparse.csr_array(-rates.reshape(-1, 1))], format="csc"
    )
    whole = sparse.csr_array((np.ones(trees), (columns.owners, np.arange(trees))), shape=(owners, trees + 1))
    solution = optimize.linprog(  # type: ignore[call-overload]  # scipy-stubs know dense matrices only
        np.append(columns.delay_costs, 1.0 / scale),
        A_ub=at_most,
        b_ub=-fixed,
        A_eq=whole,
        b_eq=np.ones(owners),
        bounds=[*[(0.0, None)] * trees, (enough, None)],
        method="highs-ds",
        options={} if limit_s is None else {"time_limit": limit_s},
    )
    if solution.status != 0:
        return None
    return np.asarray(solution.x[:-1]), float(solution.x[-1]), -np.asarray(solution.ineqlin.marginals)
