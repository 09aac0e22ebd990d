"""How firmly a centre's figures are to be taken."""

from __future__ import annotations

from dataclasses import dataclass

from controller.cluster.estimates import Basis


@dataclass(frozen=True, slots=True)
class Trust:
    """The firmest basis that estimates by a centre's figures may have, and why."""

    basis: Basis = Basis.MEASURED
    reasons: tuple[str, ...] = ()


TRUSTED = Trust()
