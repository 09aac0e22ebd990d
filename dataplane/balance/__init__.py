"""Library of a program whose precision and concurrency a balance loop sets while it runs.

    with balanced_unit("u0", precisions=("int8", "bf16", "fp32"), concurrency=(1, 4)) as unit:
        for batch in batches:
            with unit.moving:
                moved = batch.to(device)
            with unit.slot(), unit.computing:
                models[unit.precision](moved)

Without a loop the program runs as it starts. See docs/cluster/balance-service.md.
"""

from __future__ import annotations

from dataplane.balance.errors import UnitError
from dataplane.balance.unit import BalancedUnit, balanced_unit

__all__ = ["BalancedUnit", "UnitError", "balanced_unit"]
